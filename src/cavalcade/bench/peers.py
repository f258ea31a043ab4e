"""Other trainers on the same games, to be measured beside ours: a single-file PPO, and Stable-Baselines3.

Both play our simulator, so what is compared is the trainer. Neither masks actions, which is in their favour.
"""

import numpy as np
from numpy.typing import NDArray

from cavalcade.bench.single_file import Trainer, single_file_ppo
from cavalcade.envs.cage2 import Cage2
from cavalcade.errors import ConfigError

ENVS, STEPS, EPOCHS, MINIBATCHES = 200, 100, 4, 4


class BatchGames:
    """Our batch with the face of a host of single environments."""

    def __init__(self, env: Cage2):
        self.num_envs, self._env = env.spec.num_envs, env

    def reset(self) -> NDArray[np.float32]:
        """New games everywhere."""
        return self._env.reset().observation

    def step(self, actions: NDArray) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_]]:
        """Observations, rewards, ends."""
        buffers = self._env.step(actions)
        return buffers.observation, buffers.reward, buffers.terminated | buffers.truncated


def single_file(red: str, *, compiled: bool) -> Trainer:
    """The single-file PPO on our simulator."""
    games = BatchGames(Cage2(ENVS, red=red, dtype="float32"))
    return single_file_ppo(games, steps=STEPS, epochs=EPOCHS, minibatches=MINIBATCHES, compiled=compiled)


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
