"""Flattens actions of any Gymnasium space into rows of numbers, and back.

Discrete is one integer from 0; MultiDiscrete, MultiBinary and a Dict or Tuple of these are several; Box is its values
in C order, and a Dict or Tuple of Box one after the other. Dict goes by sorted key, Tuple in order. A bounded Box is
rescaled to −1 … 1 for the policy; actions are clipped to the bounds, also where only one side has one.
"""

import math
import textwrap
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import checked_actions
from cavalcade.core.errors import ActionError, ConfigError

MOST_VALUES = 1 << 24  # of an observation or an action
_NO_BOUNDS = 1e6  # a wider range counts as unbounded


class ActionLayout:
    """The layout of a space's actions in a row."""

    def __init__(self, space: Space, name: str):
        self._space = space
        leaves = list(_leaves(space))
        if not 0 < sum(_values(leaf) for leaf in leaves) <= MOST_VALUES:
            raise ConfigError(f"{name} has actions {in_one_line(space)}; they must have 1 to {MOST_VALUES} values")
        if all(isinstance(leaf, Discrete | MultiDiscrete | MultiBinary) for leaf in leaves):
            sizes = np.concatenate([_sizes(leaf) for leaf in leaves])
            self.learnt = space = Discrete(int(sizes[0])) if isinstance(space, Discrete) else MultiDiscrete(sizes)
            self._sizes, self.masks = sizes, int(sizes.sum())
            self.shape: tuple[int, ...] = () if isinstance(space, Discrete) else (len(sizes),)
            self.dtype = np.dtype(np.int64)
        elif all(isinstance(leaf, Box) and np.issubdtype(leaf.dtype, np.floating) for leaf in leaves):
            low, high = (np.concatenate([getattr(x, side).ravel() for x in leaves]) for side in ("low", "high"))
            self._low, self._high = low.astype(np.float32), high.astype(np.float32)
            low, high = low.astype(np.float64), high.astype(np.float64)
            bounded = high - low < _NO_BOUNDS
            low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
            self._middle = (low / 2 + high / 2).astype(np.float32)
            self._half = (high / 2 - low / 2).astype(np.float32)
            self.learnt = Box(-np.inf, np.inf, (len(low),), np.float32)
            self.masks, self.shape, self.dtype = 0, (len(low),), np.dtype(np.float32)
        else:
            raise ConfigError(
                f"{name} has actions {in_one_line(space)}; they must be whole numbers (Discrete, MultiDiscrete, "
                "MultiBinary) or points (Box of floats), or Dict or Tuple of one of the two"
            )
        self._first = _offset(self._space)

    def checked(self, actions: ArrayLike, num_envs: int) -> NDArray:
        """Actions as rows to send, (n, *shape); raises `ActionError` for a wrong shape, type or range."""
        if self.masks == 0:
            array = np.asarray(actions, np.float32)
            if array.shape != (num_envs, *self.shape) or not np.isfinite(array).all():
                raise ActionError(f"actions must be finite numbers of shape {(num_envs, *self.shape)}; got {array!r}")
            return np.clip(self._middle + self._half * array, self._low, self._high)
        if self.shape == ():
            array = checked_actions(actions, num_envs)
            if array.min() >= 0 and array.max() < self.masks:
                return array
        else:
            array = np.asarray(actions)
            if array.shape != (num_envs, *self.shape) or array.dtype.kind not in "iu":
                raise ActionError(f"actions must be whole numbers of shape {(num_envs, *self.shape)}; got {array!r}")
        wrong = (array < 0) | (array >= (self._sizes[0] if self.shape == () else self._sizes))
        if wrong.any():
            e, part = np.argwhere(wrong.reshape(num_envs, -1))[0].tolist()
            value, most = array.reshape(num_envs, -1)[e, part], self._sizes[part] - 1
            raise ActionError(f"action {value} of environment {e} is out of range; it must be from 0 to {most}")
        return array

    @property
    def scaling(self) -> tuple[NDArray, NDArray, NDArray, NDArray] | None:
        """Middle, half width, lower and upper bounds of continuous actions, (D,) float32 each; None for others."""
        return None if self.masks else (self._middle, self._half, self._low, self._high)

    def allows(self, masks: NDArray) -> NDArray[np.bool_]:
        """Whether masks, (n, A), allow an action of every part; (n,)."""
        starts = np.cumsum(self._sizes) - self._sizes
        return np.all(np.logical_or.reduceat(masks, starts, axis=1), axis=1)

    def native(self, rows: NDArray) -> list[Any]:
        """Rows as actions of the original space."""
        if self.shape == ():
            return list(rows + self._first)  # numpy scalars, as Discrete.sample gives
        if isinstance(self._space, MultiDiscrete):
            return list((rows + self._first).reshape(-1, *self._space.shape))
        if isinstance(self._space, Box):
            return list(rows.reshape(-1, *self._space.shape).astype(self._space.dtype))
        return [_rebuilt(self._space, list(row)) for row in rows]


def in_one_line(space: Space) -> str:
    """A space in words; long ones, which NumPy breaks into lines, shortened."""
    return textwrap.shorten(str(space), 200, placeholder=" …")


def has_empty_part(space: Space) -> bool:
    """Whether a space is, or has in it, a Dict or Tuple of nothing."""
    if not isinstance(space, Dict | Tuple):
        return False
    parts = list(space.values()) if isinstance(space, Dict) else space.spaces
    return not parts or any(has_empty_part(part) for part in parts)


def _leaves(space: Space):
    if isinstance(space, Dict):
        for key in sorted(space.spaces):
            yield from _leaves(space[key])
    elif isinstance(space, Tuple):
        for part in space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _values(space: Space) -> int:
    """How many values a policy puts out for a space; 1 for those that it cannot handle."""
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return sum(_sizes(space).tolist())
    return math.prod(space.shape) if isinstance(space, Box) else 1


def _sizes(space: Space) -> NDArray[np.int64]:
    if isinstance(space, Discrete):
        return np.array([space.n], np.int64)
    if isinstance(space, MultiDiscrete):
        return space.nvec.ravel().astype(np.int64)
    return np.full(int(np.prod(space.shape or ())), 2, np.int64)


def _offset(space: Space) -> Any:
    """The smallest action of a space."""
    start = getattr(space, "start", 0)
    return int(start) if isinstance(space, Discrete) else np.asarray(start).ravel()


def _rebuilt(space: Space, values: list[Any]) -> Any:
    """An action of a space from the first values of a list; removes them from it."""
    if isinstance(space, Dict):
        return {key: _rebuilt(space[key], values) for key in sorted(space.spaces)}
    if isinstance(space, Tuple):
        return tuple(_rebuilt(part, values) for part in space.spaces)
    count = int(np.prod(space.shape or ()))
    taken, values[:count] = np.array(values[:count]), []
    if isinstance(space, Discrete):
        return int(taken[0]) + int(space.start)
    if isinstance(space, MultiDiscrete):
        taken = taken + _offset(space)
    return taken.reshape(space.shape or ()).astype(space.dtype)
