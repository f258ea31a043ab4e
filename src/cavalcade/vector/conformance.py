"""Does an environment follow Gymnasium's API? One reset and one step tell, before workers are started."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple

from cavalcade.core.errors import ConfigError
from cavalcade.vector.actions import ActionLayout

_STEP = "(observation, reward, terminated, truncated, info)"


def check_spaces(env: gymnasium.Env, name: str) -> None:
    """Raises `ConfigError` unless the environment has both spaces."""
    for which in ("observation_space", "action_space"):
        found = getattr(env, which, None)
        if not isinstance(found, Space):
            raise ConfigError(f"{name} has {which} {found!r}; Gymnasium requires a gymnasium.spaces.Space")


def check_api(env: gymnasium.Env, name: str, actions: ActionLayout) -> None:
    """Raises `ConfigError` if what reset or step returns is not what Gymnasium requires, or a mask allows no action.

    env: without the wrappers of `gymnasium.make`, which fail on what is wrong. What the environment raises, and that it
    hangs, is left to the workers to report.
    """
    inner: Any = env
    with _random_state_kept():
        try:
            first = inner.reset(seed=0)
        except TypeError as error:
            if "seed" in str(error):
                raise ConfigError(f"reset of {name} takes no seed; Gymnasium requires reset(seed, options)") from None
            return
        except Exception:
            return
        if not isinstance(first, tuple) or len(first) != 2 or not isinstance(first[1], Mapping):
            raise ConfigError(f"reset of {name} returns {_described(first)}; Gymnasium requires (observation, info)")
        _check_observation(env.observation_space, first[0], f"reset of {name}")
        _check_mask(first[1], actions, f"reset of {name}")
        try:
            env.action_space.seed(0)
            result = inner.step(env.action_space.sample())
        except Exception:
            return
    if not isinstance(result, tuple) or len(result) != 5 or not isinstance(result[4], Mapping):
        hint = "; done is split into terminated and truncated" * (isinstance(result, tuple) and len(result) == 4)
        raise ConfigError(f"step of {name} returns {_described(result)}; Gymnasium requires {_STEP}{hint}")
    _check_observation(env.observation_space, result[0], f"step of {name}")
    if np.ndim(result[1]) or not isinstance(result[1], int | float | np.number | np.ndarray):
        raise ConfigError(f"step of {name} returns the reward {result[1]!r}; Gymnasium requires a number")
    if not np.isfinite(result[1]):
        raise ConfigError(f"step of {name} returns the reward {result[1]!r}; it must be finite")
    for what, value in zip(("terminated", "truncated"), result[2:4], strict=True):
        if np.ndim(value) or np.asarray(value).dtype.kind not in "bi":
            raise ConfigError(f"step of {name} returns {what} {value!r}; Gymnasium requires True or False")
    if not result[2] and not result[3]:
        _check_mask(result[4], actions, f"step of {name}")


def _check_mask(info: Mapping[str, Any], actions: ActionLayout, what: str) -> None:
    """Raises `ConfigError` if the action mask in an info allows no action; one of the wrong shape is left alone."""
    mask = np.asarray(info.get("action_mask", True))
    if mask.shape == (actions.masks,) and not actions.allows(mask[None]).all():
        raise ConfigError(f"{what} returns an action_mask that allows no action; it must allow at least one")


def _check_observation(space: Space, observation: Any, what: str) -> None:
    """Raises `ConfigError` if an observation has not the form of its space; values out of bounds are left alone."""
    reason = ""
    if isinstance(space, Dict):
        if isinstance(observation, Mapping) and set(observation) == set(space.spaces):
            for key, part in space.spaces.items():
                _check_observation(part, observation[key], f"{what}, key {key!r},")
            return
        reason = f"keys {', '.join(map(repr, observation))}" if isinstance(observation, Mapping) else "no mapping"
    elif isinstance(space, Tuple):
        if isinstance(observation, tuple | list) and len(observation) == len(space.spaces):
            for part, value in zip(space.spaces, observation, strict=True):
                _check_observation(part, value, what)
            return
        reason = _described(observation)
    elif isinstance(space, Box):
        array = np.asarray(observation)
        if array.shape != space.shape or not np.can_cast(array.dtype, space.dtype, "same_kind"):
            reason = f"shape {array.shape} and dtype {array.dtype}"
        elif array.dtype.kind == "f" and np.isnan(array).any():
            reason = "values that are NaN"
    elif isinstance(space, Discrete):
        inside = np.ndim(observation) == 0 and np.asarray(observation).dtype.kind in "iub"
        if not inside or not space.start <= int(observation) < space.start + space.n:
            reason = repr(observation)
    if reason:
        raise ConfigError(f"{what} returns an observation with {reason}; its observation_space is {space}")


def _described(value: Any) -> str:
    if not isinstance(value, tuple):
        return f"one value of type {type(value).__name__}"
    return f"{len(value)} values ({', '.join(type(part).__name__ for part in value)})"


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Leaves global random numbers as they were, for environments that draw from them."""
    before, legacy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(legacy)
