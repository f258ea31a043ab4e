"""Other trainers on the same games, to be measured beside ours: a single-file PPO, and Stable-Baselines3.

Both play our simulator, so what is compared is the trainer. The single-file PPO has the structure that is common for
such scripts: a rollout step by step through torch, then epochs of shuffled minibatches through autograd. Neither masks
actions, which is in their favour.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from cavalcade.envs.cage2 import Cage2
from cavalcade.errors import ConfigError

Trainer = Callable[[], None]  # makes one update: a rollout and its epochs
ENVS, STEPS, EPOCHS, MINIBATCHES = 200, 100, 4, 4


def _network(outputs: int, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out, g in ((52, 64, 2**0.5), (64, 64, 2**0.5), (64, outputs, gain)):
        layer = nn.Linear(fan_in, fan_out)
        nn.init.orthogonal_(layer.weight, g)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def single_file_ppo(red: str, compiled: bool, learning_rate: float = 2.5e-4) -> Trainer:
    """PPO in plain torch, eager or through torch.compile."""
    env = Cage2(ENVS, red=red, dtype="float32")
    actor, critic = _network(145, 0.01), _network(1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=learning_rate, eps=1e-5)
    shape = (STEPS, ENVS)
    observation = torch.zeros(*shape, 52)
    action, log_prob, reward, done, value = (torch.zeros(shape) for _ in range(5))

    def loss_of(x: Tensor, a: Tensor, old: Tensor, advantage: Tensor, returns: Tensor) -> Tensor:
        every = torch.log_softmax(actor(x), dim=-1)
        now = every.gather(1, a.long().unsqueeze(1)).squeeze(1)
        ratio = (now - old).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        entropy = -(every.exp() * every).sum(-1)
        return -gain.mean() + 0.5 * ((critic(x).squeeze(1) - returns) ** 2).mean() - 0.01 * entropy.mean()

    loss_function = torch.compile(loss_of) if compiled else loss_of

    def look(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = actor(x)
        drawn = torch.distributions.Categorical(logits=logits, validate_args=False)
        chosen = drawn.sample()
        return chosen, drawn.log_prob(chosen), critic(x).squeeze(1)

    env.reset()

    def update() -> None:
        with torch.no_grad():
            for t in range(STEPS):
                observation[t] = torch.from_numpy(env.buffers.observation)
                chosen, log_prob[t], value[t] = look(observation[t])
                action[t] = chosen
                buffers = env.step(chosen.numpy())
                reward[t] = torch.from_numpy(buffers.reward)
                done[t] = torch.from_numpy((buffers.terminated | buffers.truncated).astype(np.float32))
            following = critic(torch.from_numpy(env.buffers.observation)).squeeze(1)
            advantage, after = torch.zeros(shape), torch.zeros(ENVS)
            for t in reversed(range(STEPS)):
                going_on = 1 - done[t]
                after = reward[t] + 0.99 * following * going_on - value[t] + 0.99 * 0.95 * going_on * after
                advantage[t] = after
                following = value[t]
            returns = advantage + value
        flat = [x.reshape(STEPS * ENVS, *x.shape[2:]) for x in (observation, action, log_prob, advantage, returns)]
        for _ in range(EPOCHS):
            for index in torch.randperm(STEPS * ENVS).chunk(MINIBATCHES):
                x, a, old, adv, ret = (part[index] for part in flat)
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                optimiser.zero_grad()
                loss_function(x, a, old, adv, ret).backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimiser.step()

    return update


def stable_baselines3(red: str) -> Trainer:
    """PPO of Stable-Baselines3."""
    try:
        from stable_baselines3 import PPO

        from cavalcade.envs.sb3 import Sb3VecEnv
    except ImportError:
        raise ConfigError("Stable-Baselines3 is not installed: pip install 'cavalcade[sb3]'") from None
    env = Sb3VecEnv(Cage2(ENVS, red=red, dtype="float32"))
    size = STEPS * ENVS // MINIBATCHES
    model = PPO(
        "MlpPolicy", env, n_steps=STEPS, batch_size=size, n_epochs=EPOCHS, ent_coef=0.01, device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}}, seed=0,
    )  # fmt: skip
    return lambda: model.learn(STEPS * ENVS, reset_num_timesteps=False) and None
