"""The environment contract: a batch of games behind preallocated buffers.

Callers read the buffers in place; the next `step` or `reset` overwrites them. Autoreset is same-step: when an episode
ends, `observation` holds the first observation of the next episode and `final_observation` the last one of the episode
that ended. A time limit is a truncation, never a termination.

Shapes: N environments, O observation values, A actions. This module knows nothing of any game or of learning.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from gymnasium import Space
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.errors import ActionError

SavedState = dict[str, NDArray]
BROKEN = "broken"  # kind of episodes that ended because their worker failed


@dataclass(frozen=True)
class EnvSpec:
    """Name, size and spaces of a batch of environments."""

    name: str
    num_envs: int  # N
    observation_space: Space  # of one environment
    action_space: Space  # of one environment


class Buffers(NamedTuple):
    """The arrays an environment writes to; one row per environment."""

    observation: NDArray  # (N, O)
    reward: NDArray[np.float32]  # (N,)
    terminated: NDArray[np.bool_]  # (N,)
    truncated: NDArray[np.bool_]  # (N,)
    final_observation: NDArray  # (N, O), valid in rows whose episode ended in the latest step
    action_mask: NDArray[np.bool_]  # (N, A), True = the action has an effect; masked actions are still accepted


class Packed(NamedTuple):
    """Observations and masks packed into integers: two rows are equal if and only if what they encode is equal."""

    observation: NDArray[np.int64]  # (N, W)
    final_observation: NDArray[np.int64]  # (N, W)
    action_mask: NDArray[np.int64]  # (N, V)


class Environment(ABC):
    """A batch of environments.

    `step(actions)` is `send` followed by `recv`. A backend with worker processes returns from `send` at once, so that
    the caller can compute before `recv`. A batch with several `groups` can be stepped group by group, with `send_group`
    and `wait_any`: one group steps while the policy computes the actions of another.
    """

    spec: EnvSpec
    buffers: Buffers
    packed: Packed | None = None  # for games with few enough distinct observations that deduplication pays
    episode_kind_names: tuple[str, ...] = ("",)  # kinds of episodes, e.g. the opponent
    episode_kinds: NDArray[np.int8] | None = None  # (N,): kind of the episode that ended in the latest step
    episode_stat_names: tuple[str, ...] = ()  # names of the F episode statistics beyond return and length
    episode_stats: NDArray[np.float64] | None = None  # (N, F), valid in rows whose episode ended in the latest step
    true_state: NDArray | None = None  # (N, S): the hidden state, if requested
    critic_values: int = 0  # the last values of an observation, which critics see and policies do not
    out_of_process: bool = False  # games are stepped by other processes, which need the cores meanwhile
    resumable: bool = True  # `load_state` continues games where they were; if False, new episodes begin

    @abstractmethod
    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode in all or the given environments; with a seed, the first episode of that seed."""

    @abstractmethod
    def send(self, actions: ArrayLike) -> None:
        """Sends one action per environment."""

    @abstractmethod
    def recv(self) -> Buffers:
        """Waits for the results of the actions sent."""

    def step(self, actions: ArrayLike) -> Buffers:
        """Steps every environment once."""
        self.send(actions)
        return self.recv()

    @property
    def groups(self) -> tuple[slice, ...]:
        """The rows of each group of environments that are stepped together."""
        return (slice(0, self.spec.num_envs),)

    def send_group(self, group: int, actions: ArrayLike) -> None:
        """Sends one action per environment of a group."""
        self.send(actions)

    def wait_any(self) -> int:
        """Waits until any group that was sent actions has results; returns its number."""
        self.recv()
        return 0

    def ready(self) -> bool:
        """Whether the next `wait_any` returns at once; False if that is not known."""
        return False

    @abstractmethod
    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """A copy of the games, one row per environment: all, or those given."""

    @abstractmethod
    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Loads saved games into all or the given environments and writes their observations to the buffers."""

    @abstractmethod
    def clone(self, indices: ArrayLike | None = None) -> Self:
        """An independent batch that continues from these games."""

    def close(self) -> None:  # noqa: B027 — most environments hold nothing
        """Releases processes, memory and files that the environment holds outside its buffers."""


def checked_actions(actions: ArrayLike, num_envs: int) -> NDArray:
    """Actions as an integer array (num_envs,); the environment checks their range."""
    try:
        array = np.asarray(actions)
    except ValueError as error:  # ragged
        raise ActionError(f"actions are not an array of {num_envs} whole numbers: {error}") from None
    if array.shape != (num_envs,):
        raise ActionError(f"actions have shape {array.shape}; with {num_envs} environments it must be ({num_envs},)")
    if array.dtype.kind not in "iu":
        raise ActionError(f"actions are of type {array.dtype}; they must be whole numbers, e.g. int32 or int64")
    return array
