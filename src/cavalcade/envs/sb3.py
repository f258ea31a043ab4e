"""A batch environment as a Stable-Baselines3 `VecEnv`.

Stable-Baselines3 does not accept Gymnasium vector environments and expects a list of info dictionaries per step. They
have the keys it reads: `terminal_observation`, `TimeLimit.truncated`, and `episode` with return and length for logs.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError:
    raise ImportError("the Stable-Baselines3 adapter needs stable-baselines3: pip install 'cavalcade[sb3]'") from None


class Sb3VecEnv(VecEnv):
    """A batch environment for Stable-Baselines3, with the action masks that sb3-contrib's MaskablePPO reads."""

    def __init__(self, env: Environment):
        self.batch = env
        self.render_mode = None
        self._returns = np.zeros(env.spec.num_envs)
        self._lengths = np.zeros(env.spec.num_envs, np.int64)
        self._start = time.monotonic()
        super().__init__(env.spec.num_envs, env.spec.observation_space, env.spec.action_space)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Sets the seed of the games for the next reset; with one seed, every environment still plays its own games."""
        self._seeds = [seed] * self.num_envs
        return self._seeds

    def reset(self) -> NDArray:
        """Begins new episodes in all environments."""
        self._returns[:] = 0
        self._lengths[:] = 0
        observation = self.batch.reset(seed=self._seeds[0]).observation.copy()
        self._reset_seeds()
        return observation

    def step_async(self, actions: NDArray) -> None:
        """Sends the actions."""
        self.batch.send(actions)

    def step_wait(self) -> tuple[NDArray, NDArray, NDArray, list[dict[str, Any]]]:
        """Waits for the results: observations, rewards, dones, infos."""
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
        """The action masks, (N, A); True = the action has an effect."""
        return self.batch.buffers.action_mask.copy()

    def close(self) -> None:
        """Closes the batch."""
        self.batch.close()

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Calls a method of each environment; the only one is `action_masks`."""
        self._only_masks(method_name)
        return list(self.action_masks()[list(self._get_indices(indices))])

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment: `action_masks`, `spec` or `render_mode`."""
        values = {"action_masks": self.action_masks, "render_mode": None, "spec": self.batch.spec}
        if attr_name not in values:
            raise AttributeError(
                f"{attr_name!r} is not an attribute of the environments; there are {', '.join(values)}"
            )
        return [values[attr_name] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raises `ConfigError`: the environments of a batch share their settings."""
        raise ConfigError(f"cannot set {attr_name!r}: the environments of a batch share their settings")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """False for each environment: none is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def _only_masks(self, method_name: str) -> None:
        if method_name != "action_masks":
            raise AttributeError(f"{method_name!r} is not a method of the environments; there is action_masks")
