"""A single-file PPO of the usual structure, on any host of environments: the baseline that we are measured beside.

A rollout step by step through torch, then epochs of shuffled minibatches through autograd. It masks no actions.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cavalcade.core.contract import Environment

Trainer = Callable[[], None]  # makes one update: a rollout and its epochs


class Games(Protocol):
    """Environments stepped together."""

    num_envs: int

    def reset(self) -> NDArray[np.float32]:
        """New games everywhere."""
        ...

    def step(self, actions: NDArray) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        """Observations, rewards, ends."""
        ...


class BatchGames:
    """Our batch of games, with the interface of a host of single environments."""

    def __init__(self, env: Environment):
        self.num_envs, self._env = env.spec.num_envs, env

    def reset(self) -> NDArray[np.float32]:
        """New games everywhere."""
        return self._env.reset().observation

    def step(self, actions: NDArray) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        """Observations, rewards, ends."""
        buffers = self._env.step(actions)
        return buffers.observation, buffers.reward, buffers.terminated | buffers.truncated


def _network(outputs: int, gain: float, hidden: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out, g in ((52, hidden, 2**0.5), (hidden, hidden, 2**0.5), (hidden, outputs, gain)):
        layer = nn.Linear(fan_in, fan_out)
        nn.init.orthogonal_(layer.weight, g)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def single_file_ppo(
    games: Games,
    *,
    steps: int = 100,
    epochs: int = 4,
    minibatches: int = 4,
    hidden: int = 64,
    compiled: bool = False,
    scripted: bool = False,
    learning_rate: float = 2.5e-4,
) -> Trainer:
    """PPO in plain torch; its loss through torch.compile, or its networks through TorchScript, if so asked."""
    n = games.num_envs
    actor, critic = _network(145, 0.01, hidden), _network(1, 1.0, hidden)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=learning_rate, eps=1e-5)
    run_actor, run_critic = (torch.jit.script(net) if scripted else net for net in (actor, critic))
    shape = (steps, n)
    observation = torch.zeros(*shape, 52)
    action, log_prob, reward, done, value = (torch.zeros(shape) for _ in range(5))

    def loss_of(x: Tensor, a: Tensor, old: Tensor, advantage: Tensor, returns: Tensor) -> Tensor:
        every = torch.log_softmax(run_actor(x), dim=-1)
        now = every.gather(1, a.long().unsqueeze(1)).squeeze(1)
        ratio = (now - old).exp()
        gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        entropy = -(every.exp() * every).sum(-1)
        return -gain.mean() + 0.5 * ((run_critic(x).squeeze(1) - returns) ** 2).mean() - 0.01 * entropy.mean()

    loss_function = torch.compile(loss_of) if compiled else loss_of
    latest = [torch.from_numpy(np.asarray(games.reset(), np.float32))]

    def rollout() -> None:
        for t in range(steps):
            observation[t] = latest[0]
            drawn = torch.distributions.Categorical(logits=run_actor(latest[0]), validate_args=False)
            chosen = drawn.sample()
            action[t], log_prob[t], value[t] = chosen, drawn.log_prob(chosen), run_critic(latest[0]).squeeze(1)
            seen, paid, over = games.step(chosen.numpy())
            latest[0] = torch.from_numpy(seen)
            reward[t] = torch.from_numpy(paid)
            done[t] = torch.from_numpy(over.astype(np.float32))

    def update() -> None:
        with torch.no_grad():
            rollout()
            following = run_critic(latest[0]).squeeze(1)
            advantage, after = torch.zeros(shape), torch.zeros(n)
            for t in reversed(range(steps)):
                going_on = 1 - done[t]
                after = reward[t] + 0.99 * following * going_on - value[t] + 0.99 * 0.95 * going_on * after
                advantage[t] = after
                following = value[t]
            returns = advantage + value
        flat = [x.reshape(steps * n, *x.shape[2:]) for x in (observation, action, log_prob, advantage, returns)]
        for _ in range(epochs):
            for index in torch.randperm(steps * n).chunk(minibatches):
                x, a, old, adv, ret = (part[index] for part in flat)
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                optimiser.zero_grad()
                loss_function(x, a, old, adv, ret).backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimiser.step()

    return update
