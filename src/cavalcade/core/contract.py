"""What an environment is to the rest of Cavalcade: a batch of games behind preallocated buffers.

The learner reads the buffers in place and never copies them; the next `step` or `reset` overwrites them. Autoreset is
same-step: when an episode ends, `observation` already shows the first observation of the next one and
`final_observation` keeps the last of the old. Running out of time is a truncation, never a termination.

Shapes: N environments, O observation values, A actions. This module knows nothing of any game or of learning.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from gymnasium import Space
from numpy.typing import ArrayLike, NDArray

from cavalcade.errors import ActionError

SavedState = dict[str, NDArray]


@dataclass(frozen=True)
class EnvSpec:
    """What a batch of environments looks like from outside."""

    name: str
    num_envs: int  # N
    observation_space: Space  # of one environment
    action_space: Space  # of one environment


class Buffers(NamedTuple):
    """Where an environment writes; rows are environments."""

    observation: NDArray  # (N, O)
    reward: NDArray[np.float32]  # (N,)
    terminated: NDArray[np.bool_]  # (N,)
    truncated: NDArray[np.bool_]  # (N,)
    final_observation: NDArray  # (N, O), valid in rows that ended in the latest step
    action_mask: NDArray[np.bool_]  # (N, A), True = would do something; a masked action may still be sent


class Packed(NamedTuple):
    """The same observations and masks as integers: equal rows mean equal observations or masks."""

    observation: NDArray[np.int64]  # (N, W)
    final_observation: NDArray[np.int64]  # (N, W)
    action_mask: NDArray[np.int64]  # (N, V)


class Environment(ABC):
    """A batch of environments.

    `step(actions)` is `send` followed by `recv`; a backend that works elsewhere returns from `send` at once and lets
    the learner do something else before `recv`. A batch in several `groups` can be driven group by group, with
    `send_group` and `take`, so that one group steps while the learner thinks about another.
    """

    spec: EnvSpec
    buffers: Buffers
    packed: Packed | None = None  # where observations are few enough in kind to be worth telling apart
    label_names: tuple[str, ...] = ("",)  # kinds of episodes, e.g. who played against the agent
    labels: NDArray[np.int8] | None = None  # (N,): the kind of episode that ended in the latest step
    figure_names: tuple[str, ...] = ()  # what else an environment measures about an episode …
    figures: NDArray[np.float64] | None = None  # (N, F): … valid in rows that ended in the latest step
    true_state: NDArray | None = None  # (N, S): what the agent does not see, where an environment was asked for it
    elsewhere: bool = False  # whether games are stepped by other processes, which need the cores meanwhile
    continues: bool = True  # whether games go on after `load_state` where they were; else new ones begin

    @abstractmethod
    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode, in all environments or those given; with a seed, the first episode of that seed."""

    @abstractmethod
    def send(self, actions: ArrayLike) -> None:
        """Hands over one action per environment."""

    @abstractmethod
    def recv(self) -> Buffers:
        """Waits for the results of the actions sent."""

    def step(self, actions: ArrayLike) -> Buffers:
        """One step of every environment."""
        self.send(actions)
        return self.recv()

    @property
    def groups(self) -> tuple[slice, ...]:
        """The environments that are driven together."""
        return (slice(0, self.spec.num_envs),)

    def send_group(self, group: int, actions: ArrayLike) -> None:
        """Hands over one action per environment of a group."""
        self.send(actions)

    def take(self) -> int:
        """Waits for the results of some group that actions were sent to; returns which."""
        self.recv()
        return 0

    @abstractmethod
    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """A copy of the games, row by environment: all, or those given."""

    @abstractmethod
    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Puts saved games into all environments, or into those given, and shows them in the buffers."""

    @abstractmethod
    def clone(self, indices: ArrayLike | None = None) -> Self:
        """A new batch that plays on from these games, apart from this one."""

    def close(self) -> None:  # noqa: B027 — most environments hold nothing
        """Gives back whatever the environment holds outside its buffers."""


def checked_actions(actions: ArrayLike, num_envs: int) -> NDArray:
    """Actions as an array of whole numbers, one per environment; their range is the environment's business."""
    try:
        array = np.asarray(actions)
    except ValueError as error:  # ragged
        raise ActionError(f"actions are no array of {num_envs} whole numbers: {error}") from None
    if array.shape != (num_envs,):
        raise ActionError(f"actions have shape {array.shape}; with {num_envs} environments it must be ({num_envs},)")
    if array.dtype.kind not in "iu":
        raise ActionError(f"actions are of type {array.dtype}; they must be whole numbers, e.g. int32 or int64")
    return array
