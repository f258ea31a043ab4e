"""Gymnasium environments of some rows of a batch, stepped one after the other, in a worker or in this process."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.spaces.utils import flatten
from numpy.typing import NDArray

from cavalcade.core.errors import WorkerError
from cavalcade.vector.actions import ActionLayout
from cavalcade.vector.source import AppendTrueState, is_flat, make_env, unwrapped


def make_rows(fields: dict[str, np.ndarray], start: int, stop: int, options: dict[str, Any]) -> "Rows":
    """Entry point of the worker: environments of rows start … stop − 1."""
    return Rows(fields, start, stop, **options)


class Rows:
    """Environments of rows start … stop − 1 of the shared buffers."""

    def __init__(
        self,
        fields: dict[str, np.ndarray],
        start: int,
        stop: int,
        *,
        name: str,
        options: dict[str, Any],
        infos: list[str],
        true_state_every: int,
        frames: int = 1,
        critic_state: bool = False,
    ):
        self._fields, self._rows, self._name = fields, slice(start, stop), name
        made = [make_env(name, options) for _ in range(start, stop)]
        if critic_state:
            made = [AppendTrueState(env) for env in made]
        self._space, self._actions = made[0].observation_space, ActionLayout(made[0].action_space, name)
        self._envs, limits = zip(*(unwrapped(env) for env in made), strict=True)
        self._limit, self._lengths = limits[0], np.zeros(len(made), np.int64)
        self._steps = [env.step for env in self._envs]
        self._flat, self._infos, self._state_every = is_flat(self._space), infos, true_state_every
        self._masked = self._actions.masks > 0 and hasattr(made[0].unwrapped, "action_masks")
        fields["action_mask"][self._rows] = True
        self._observation = fields["observation"][self._rows]
        self._final, self._mask = fields["final_observation"][self._rows], fields["action_mask"][self._rows]
        self._plain = isinstance(self._space, Box) and self._space.dtype == self._observation.dtype
        self._frames = frames
        self._stack, self._final_stack = (
            x.reshape(len(made), frames, -1) for x in (self._observation, self._final)
        )  # (n, K, O): oldest first
        self._state, self._figures = fields["true_state"][self._rows], fields["episode_stats"][self._rows]
        self._reward, self._action = fields["reward"][self._rows], fields["action"][self._rows]
        self._over, self._late = fields["terminated"][self._rows], fields["truncated"][self._rows]
        self._clock = 0

    def reset(self) -> None:
        """Begins episodes in the rows marked `wanted`; each episode of each environment has its own seed."""
        f, first = self._fields, self._rows.start
        for i in np.flatnonzero(f["wanted"][self._rows]).tolist():
            row = first + i
            f["episodes"][row] += 1
            identity = [int(f[field][row]) for field in ("seed", "index", "episodes")]
            words = np.random.SeedSequence(identity).generate_state(1)
            observation, info = self._envs[i].reset(seed=int(words[0] >> 1))
            self._lengths[i] = 0
            self._masked = self._masked or (self._actions.masks > 0 and "action_mask" in info)
            self._stack[i], self._final[i] = self._row(observation), 0
            if self._masked:
                self._show_mask(i, info)
            if self._state_every:
                self._show_states([i])
            f["reward"][row] = 0
            f["terminated"][row] = f["truncated"][row] = False
        self._check_masks()
        self._check()

    def step(self) -> None:
        """Steps each environment with the action in its row; where an episode ends, begins the next."""
        lengths = self._lengths
        actions = self._actions.native(self._action)
        results = [step(action) for step, action in zip(self._steps, actions, strict=True)]
        observations, self._reward[:], self._over[:], self._late[:], infos = zip(*results, strict=True)
        lengths += 1
        self._late |= lengths >= self._limit
        ended = self._late | self._over
        if ended.any():
            observations, infos = list(observations), list(infos)
            for i in np.flatnonzero(ended).tolist():
                observations[i], infos[i] = self._end(i, observations[i], infos[i])
        self._show(observations, infos, ended)
        self._clock += 1
        if self._state_every:
            due = self._clock % self._state_every == 0
            self._show_states(range(len(lengths)) if due else np.flatnonzero(ended).tolist())
        self._check()

    def _end(self, i: int, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Writes the final observation and statistics of an episode and begins the next."""
        self._final_stack[i, :-1], self._final_stack[i, -1] = self._stack[i, 1:], self._row(observation)
        for k, name in enumerate(self._infos):
            self._figures[i, k] = _number(info.get(name))
        self._lengths[i] = 0
        self._fields["episodes"][self._rows.start + i] += 1
        return self._envs[i].reset()

    def _row(self, observation: Any) -> Any:
        if self._flat:
            return observation
        return np.asarray(observation).reshape(-1) if self._plain else flatten(self._space, observation)

    def _show(self, observations: Sequence[Any], infos: Sequence[dict[str, Any]], ended: NDArray[np.bool_]) -> None:
        if self._flat and self._frames == 1:
            np.concatenate(observations, out=self._observation.reshape(-1), casting="unsafe")
        else:
            self._stack[:, :-1] = self._stack[:, 1:]
            for i, observation in enumerate(observations):
                self._stack[i, 0 if ended[i] else -1 :] = self._row(observation)  # a new episode fills the whole stack
        self._masked = self._masked or (self._actions.masks > 0 and "action_mask" in infos[0])
        if self._masked:
            for i, info in enumerate(infos):
                self._show_mask(i, info)
            self._check_masks()

    def _show_mask(self, i: int, info: dict[str, Any]) -> None:
        env: Any = self._envs[i].unwrapped
        if "action_mask" in info:
            self._mask[i] = info["action_mask"]
        else:
            self._mask[i] = env.action_masks() if hasattr(env, "action_masks") else True

    def _check_masks(self) -> None:
        """Raises `WorkerError` if a mask allows no action."""
        if self._masked and not (allowed := self._actions.allows(self._mask)).all():
            row = self._rows.start + int(allowed.argmin())
            raise WorkerError(f"the action mask of {self._name} allows no action (environment {row})")

    def _show_states(self, which: Iterable[int]) -> None:
        for i in which:
            env: Any = self._envs[i].unwrapped
            self._state[i] = np.ravel(env.true_state())

    def _check(self) -> None:
        """Raises `WorkerError` if a value is NaN or infinite."""
        reward = self._reward
        shown = () if self._observation.dtype == np.uint8 else (self._observation, self._final)  # bytes are finite
        if math.isfinite(sum(x.sum(dtype=np.float64) for x in (*shown, reward))):
            return  # a single NaN or infinity would make the sum NaN or infinite
        parts = (self._observation, self._final, reward[:, None])
        bad = ~np.all([np.isfinite(part).all(axis=1) for part in parts], axis=0)
        if bad.any():
            raise WorkerError(
                f"environment {self._rows.start + int(bad.argmax())} returned a value that is NaN or infinite"
            )

    def close(self) -> None:
        failed = None
        for env in self._envs:
            try:
                env.close()
            except Exception as error:  # nothing is lost
                failed = error
        if failed:
            print(f"closing an environment failed: {failed!r}", file=sys.stderr)


def _number(value: Any) -> float:
    """A value of an info as a float; NaN if it is not a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
