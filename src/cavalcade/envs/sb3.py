"""A batch environment as a Stable-Baselines3 `VecEnv`.

Stable-Baselines3 takes no Gymnasium vector environment and wants a list of dictionaries per step; what it needs in them
is there: `terminal_observation`, `TimeLimit.truncated`, and the episode's return and length for its logs.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.contract import Environment
from cavalcade.errors import ConfigError

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError:
    raise ImportError("the Stable-Baselines3 adapter needs stable-baselines3: pip install 'cavalcade[sb3]'") from None


class Sb3VecEnv(VecEnv):
    """Lets Stable-Baselines3 train on a batch environment; sb3-contrib's MaskablePPO finds the action masks."""

    def __init__(self, env: Environment):
        self.batch = env
        self.render_mode = None
        self._returns = np.zeros(env.spec.num_envs)
        self._lengths = np.zeros(env.spec.num_envs, np.int64)
        self._start = time.monotonic()
        super().__init__(env.spec.num_envs, env.spec.observation_space, env.spec.action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Sets the seed of the games, used at the next reset; one seed gives every environment its own randomness."""
        self._seeds = [seed] * self.num_envs
        return self._seeds

    def reset(self) -> NDArray:
        """Begins new episodes everywhere."""
        self._returns[:] = 0
        self._lengths[:] = 0
        observation = self.batch.reset(seed=self._seeds[0]).observation.copy()
        self._reset_seeds()
        return observation

    def step_async(self, actions: NDArray) -> None:
        """Hands over the actions."""
        self.batch.send(actions)

    def step_wait(self) -> tuple[NDArray, NDArray, NDArray, list[dict[str, Any]]]:
        """The results, as Stable-Baselines3 wants them."""
        buffers = self.batch.recv()
        ended = buffers.terminated | buffers.truncated
        self._returns += buffers.reward
        self._lengths += 1
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        for e in np.flatnonzero(ended):
            infos[e] = {
                "TimeLimit.truncated": bool(buffers.truncated[e] and not buffers.terminated[e]),
                "terminal_observation": buffers.final_observation[e].copy(),
                "episode": {
                    "r": round(float(self._returns[e]), 6),
                    "l": int(self._lengths[e]),
                    "t": round(time.monotonic() - self._start, 6),
                },
            }
        self._returns[ended] = 0
        self._lengths[ended] = 0
        return buffers.observation.copy(), buffers.reward.copy(), ended, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Which actions would do something, (N, A)."""
        return self.batch.buffers.action_mask.copy()

    def close(self) -> None:
        """Closes the batch."""
        self.batch.close()

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Calls a method for each environment; there is one, `action_masks`."""
        self._only_masks(method_name)
        return list(self.action_masks()[list(self._get_indices(indices))])

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment: `action_masks`, `spec` or `render_mode`."""
        values = {"action_masks": self.action_masks, "render_mode": None, "spec": self.batch.spec}
        if attr_name not in values:
            raise AttributeError(f"{attr_name!r} is no attribute of these environments; there are {', '.join(values)}")
        return [values[attr_name] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Nothing can be set on single environments of a batch."""
        raise ConfigError(f"cannot set {attr_name!r}: the environments of a batch share their settings")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """No environment has a wrapper of its own."""
        return [False for _ in self._get_indices(indices)]

    def _only_masks(self, method_name: str) -> None:
        if method_name != "action_masks":
            raise AttributeError(f"{method_name!r} is no method of these environments; there is action_masks")
