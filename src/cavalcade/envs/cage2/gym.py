"""CAGE-2 for Gymnasium: `cavalcade/Cage2-v0` as a single environment and as a vector environment.

Both run the native batch. Observations are float32 unless `dtype` says otherwise.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from cavalcade.core.errors import ActionError, ConfigError, one_of
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.reward import PARTS
from cavalcade.envs.cage2.text import game_lines


def rendered(batch: Cage2, mode: str, e: int) -> Any:
    """One game of a batch in a render mode."""
    if mode == "ansi":
        return "\n".join(game_lines(batch, e))
    from cavalcade.envs.cage2.picture import draw

    return draw(batch, e)


class Cage2Env(gymnasium.Env):
    """One game. Options are those of `Cage2`; the horizon truncates an episode.

    `info` has `action_mask` (145 booleans) and the parts of the reward, `hosts`, `impact` and `restore`.
    `batch.state` is the true state.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}

    def __init__(self, *, render_mode: str | None = None, dtype: str = "float32", **options: Any):
        one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.render_mode = render_mode
        self._seeded = "seed" in options
        self.batch = Cage2(1, dtype=dtype, autoreset=False, threads=1, **options)
        self.observation_space = self.batch.spec.observation_space
        self.action_space = self.batch.spec.action_space
        self._action = np.zeros(1, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Begins the next episode, or with a seed the first of that seed. Options are not accepted.

        Without any seed, here or for the environment, the first reset draws one, so that copies play different games.
        """
        super().reset(seed=seed)
        if options:
            raise ConfigError(f"reset options are {options!r}; Cage2 has none, give them to gymnasium.make")
        if seed is None and not self._seeded:
            seed = int(self.np_random.integers(2**31))
        self._seeded = True
        buffers = self.batch.reset(seed=seed)
        return buffers.observation[0].copy(), self._info()

    def step(self, action):
        """Steps Blue, Green and Red."""
        try:
            self._action[0] = action
        except (TypeError, ValueError, OverflowError):
            raise ActionError(f"action is {action!r}; it must be a whole number from 0 to 144") from None
        if self._action[0] != action:
            raise ActionError(f"action is {action!r}; it must be a whole number from 0 to 144")
        buffers = self.batch.step(self._action)
        reward = int(self.batch.reward_parts.sum()) / 10
        return buffers.observation[0].copy(), reward, False, bool(buffers.truncated[0]), self._info()

    def action_masks(self) -> NDArray[np.bool_]:
        """The action mask (145,), under the name that sb3-contrib expects."""
        return self.batch.buffers.action_mask[0].copy()

    def render(self) -> Any:
        """The game as text with render_mode ansi, as a picture (640, 960, 3) with rgb_array."""
        return rendered(self.batch, self.render_mode, 0) if self.render_mode else None

    def _info(self) -> dict[str, Any]:
        parts = self.batch.reward_parts[0].tolist()
        return {
            "action_mask": self.action_masks(),
            **{name: part / 10 for name, part in zip(PARTS, parts, strict=True)},
        }


class Cage2VectorEnv(gymnasium.vector.VectorEnv):
    """A batch of games. Options are those of `Cage2`; `copy=False` returns the buffers, which each step overwrites.

    Autoreset is same-step: in rows whose episode ends, the observation is the first of the next episode,
    `info["final_obs"]` has the last of the old one and `info["final_info"]["episode"]` its return `r` and length `l`;
    `_final_obs` and `_final_info` mark the rows.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        *,
        render_mode: str | None = None,
        copy: bool = True,
        dtype: str = "float32",
        **options: Any,
    ):
        one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.render_mode = render_mode
        self.batch = Cage2(num_envs, dtype=dtype, **options)
        self.num_envs = num_envs
        self.copy = copy
        self.single_observation_space = self.batch.spec.observation_space
        self.single_action_space = self.batch.spec.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._all = np.ones(num_envs, np.bool_)

    def reset(self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None):
        """Begins the next episodes, or with a seed the first of that seed; `reset_mask` in the options selects rows."""
        options = dict(options or {})
        rows = options.pop("reset_mask", None)
        if options:
            raise ConfigError(f"reset options are {options!r}; Cage2 knows only reset_mask")
        buffers = self.batch.reset(seed=seed, indices=rows)
        return self._given(buffers.observation), self._info()

    def step(self, actions):
        """Steps all games."""
        buffers = self.batch.step(actions)
        ended = buffers.truncated
        info = self._info()
        if ended.any():
            length = np.where(ended, self.batch.params.horizon, 0)
            episode = {"r": np.where(ended, self.batch.final_total / 10, 0), "l": length}
            info.update(
                final_obs=self._given(buffers.final_observation),
                _final_obs=ended.copy(),
                final_info={"episode": episode, "_episode": ended.copy()},
                _final_info=ended.copy(),
            )
        given = (self._given(array) for array in (buffers.reward, buffers.terminated, buffers.truncated))
        return self._given(buffers.observation), *given, info

    def render(self) -> tuple[Any, ...] | None:
        """Every game of the batch in the render mode; meant for a few."""
        if not self.render_mode:
            return None
        return tuple(rendered(self.batch, self.render_mode, e) for e in range(self.num_envs))

    def _given(self, array: NDArray) -> NDArray:
        return array.copy() if self.copy else array

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._given(self.batch.buffers.action_mask), "_action_mask": self._all}
