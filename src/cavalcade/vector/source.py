"""Sources of single environments, and the shapes of their rows in a batch.

A source is plain data, so that a worker process can make the environments. For Gymnasium it is a name: `CartPole-v1`,
or `mypackage:MyEnv-v0`, which imports mypackage first. Observations of any space that Gymnasium can flatten become one
row: Box in C order, Discrete one-hot, MultiDiscrete one one-hot after the other, Dict by sorted key, Tuple in order
(`gymnasium.spaces.utils`); uint8 stays uint8, everything else is float32. With frame stacking a row holds the K latest
observations, oldest first.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.spaces.utils import flatdim, flatten, flatten_space
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from cavalcade.core.errors import ConfigError
from cavalcade.core.images import ImageLayout, image_layout
from cavalcade.core.time_limit import time_limit
from cavalcade.vector.actions import MOST_VALUES, ActionLayout, has_empty_part, in_one_line
from cavalcade.vector.conformance import check_api, check_spaces

GYM_ROWS = "cavalcade.vector.rows"
_NEVER = 2**62
_PATIENCE = 10.0  # seconds for the look at an environment
_CHECKED: set[tuple[str, str]] = set()  # environments that were found to follow Gymnasium's API, with their options


@dataclass(frozen=True)
class Shapes:
    """Sizes and dtypes of the rows of a batch."""

    observation: int  # O
    observation_type: str
    actions: ActionLayout
    episode_stats: tuple[str, ...] = ()  # names
    true_state: int = 0  # S, 0 if not requested
    true_state_type: str = "float32"
    image: ImageLayout | None = None  # if observations are images
    critic_values: int = 0  # the last values of an observation, for critics only

    @property
    def observed(self) -> Box:
        """The observation space of a row."""
        low, high = (0, 255) if self.observation_type == "uint8" else (-np.inf, np.inf)
        return Box(low, high, (self.observation,), np.dtype(self.observation_type).type)


@dataclass(frozen=True)
class Source:
    """A description from which any process can make environments."""

    name: str
    shapes: Shapes
    maker: str  # module or file with `make_rows`
    options: Mapping[str, Any]  # keyword arguments of `make_rows`
    python: Path = field(default_factory=lambda: Path(sys.executable))  # interpreter of the workers
    agents: int = 1  # rows per environment, never split


def discrete_actions(count: int, kind: str = "int64") -> ActionLayout:
    """The layout of one of `count` actions, sent with dtype `kind`."""
    layout = ActionLayout(Discrete(count), "this environment")
    layout.dtype = np.dtype(kind)
    return layout


def gym_source(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    infos: Sequence[str] = (),
    true_state_every: int = 0,
    frames: int = 1,
    critic_state: bool = False,
) -> Source:
    """Gymnasium environments by name; makes one to read its spaces, and raises `ConfigError` if they do not fit.

    infos: names of info values to report as episode statistics; true_state_every: steps between reads of the
    environment's `true_state()`, 0 for never; frames: latest observations in a row; critic_state: observations end with
    the true state, for critics only.
    """
    given = dict(options or {})
    env = make_env(name, given)
    try:
        check_spaces(env, name)
        seen = 0
        if critic_state:
            seen, env = _true_state_size(env, name), AppendTrueState(env)
        flat = _flat(env.observation_space, name)
        kind = "uint8" if flat.dtype == np.uint8 else "float32"
        size = _true_state_size(env, name) if true_state_every else 0
        image = image_layout(env.observation_space, frames)
        actions = ActionLayout(env.action_space, name)
        shapes = Shapes(frames * int(flat.shape[0]), kind, actions, tuple(infos), size, image=image, critic_values=seen)
        if (what := (name, repr(given))) not in _CHECKED:
            with suppress(TimeoutError), time_limit(_PATIENCE):  # workers have a limit of their own, and report it
                check_api(unwrapped(env)[0], name, actions)
            _CHECKED.add(what)
    finally:
        with suppress(Exception), time_limit(_PATIENCE):  # nothing is lost
            env.close()
    made = {
        "name": name,
        "options": given,
        "infos": list(infos),
        "true_state_every": true_state_every,
        "frames": frames,
        "critic_state": critic_state,
    }
    return Source(name, shapes, GYM_ROWS, made)


class AppendTrueState(gymnasium.ObservationWrapper):
    """Flat observations followed by the environment's `true_state()`."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        env.reset(seed=0)
        size = flatdim(env.observation_space) + np.size(self._true_state())
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """Observation and true state in a row."""
        flat: Any = flatten(self.env.observation_space, observation)
        return np.concatenate([np.ravel(flat), np.ravel(self._true_state())]).astype(np.float32)

    def _true_state(self) -> Any:
        return self.unwrapped.true_state()  # pyright: ignore[reportAttributeAccessIssue]


def make_env(name: str, options: Mapping[str, Any]) -> gymnasium.Env:
    """Makes one Gymnasium environment; raises `ConfigError` if it fails."""
    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError, AttributeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"environment {name!r} cannot be made: {reason}") from None


def _flat(space: Space, name: str) -> Box:
    """The space of flat observations; raises `ConfigError` if there are none, or far too many values."""
    if not space.is_np_flattenable:
        raise ConfigError(f"{name} has observations {in_one_line(space)}, which have no fixed flat form")
    if has_empty_part(space):
        raise ConfigError(f"{name} has observations {in_one_line(space)}; an empty Dict or Tuple has no flat form")
    if not 0 < (size := flatdim(space)) <= MOST_VALUES:
        raise ConfigError(f"{name} has observations of {size} values; they must have 1 to {MOST_VALUES}")
    flat = flatten_space(space)
    assert isinstance(flat, Box)
    return flat


def _true_state_size(env: gymnasium.Env, name: str) -> int:
    if not hasattr(env.unwrapped, "true_state"):
        raise ConfigError(f"{name} has no method true_state(), which returns its hidden state as numbers; add it")
    env.reset(seed=0)
    return int(np.size(env.unwrapped.true_state()))  # pyright: ignore[reportAttributeAccessIssue]


def unwrapped(env: gymnasium.Env) -> tuple[gymnasium.Env, int]:
    """An environment without the wrappers whose work `vector.rows` does itself, and its time limit."""
    limit = _NEVER
    if type(env) is TimeLimit:
        env, limit = env.env, env._max_episode_steps
    if type(env) is OrderEnforcing:
        env = env.env
    return env, limit


def is_flat(space: Space) -> bool:
    """Whether observations need no flattening."""
    return isinstance(space, Box) and len(space.shape) == 1
