"""Fragments: T steps that workers play by themselves with a copy of the policy, and who brings them.

A learner publishes its policy under a version number and takes fragments as they are finished. Each worker has at most
`limit` fragments begun or finished but not taken, fewer as long as the learner never waits. The learner takes as many
per update as there are workers, the oldest first, and before each update waits for those that would be `limit` updates
old after it. Then no fragment is ever older than `limit` updates when it is learnt from, and none is thrown away.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cavalcade.vector.buffers import Place, places_of
from cavalcade.vector.source import Shapes


@dataclass(frozen=True)
class FragmentPlan:
    """What workers need to know besides their environments."""

    steps: int  # T
    limit: int  # fragments of a worker that are not taken
    policy: Mapping[str, Any]  # plain data, see `player.Perceptron`
    keys: NDArray[np.uint64]  # (N,): of the random draws of each environment
    player: str = ""  # module whose `Player` acts with the policy; without one, `player`
    more: Mapping[str, tuple[int, tuple[int, ...], str]] = field(default_factory=dict)
    """Further fields of a fragment: steps, shape per environment, dtype."""


class Fragment(NamedTuple):
    """T steps of the environments of one worker."""

    worker: int
    number: int  # fragments of this worker before it
    version: int  # of the policy: updates behind it
    fields: Mapping[str, NDArray]  # see `player.Player`; observation and action_mask have T + 1 steps, others T
    episodes: NDArray[np.int64]  # (n,): episodes begun so far


class FragmentSource(Protocol):
    """Workers that play fragments."""

    groups: tuple[slice, ...]  # environments of each worker

    def publish(self, version: int, values: NDArray[np.float32]) -> None:
        """Gives workers a new policy."""
        ...

    def playing(self) -> list[int]:
        """Versions of the policies of unfinished fragments."""
        ...

    def finished(self) -> list[Fragment]:
        """Fragments that are ready to be taken; those of one worker in order."""
        ...

    def allow(self, fragments: int) -> None:
        """Sets how many finished fragments of a worker may wait to be taken, from 1 to the plan's limit."""
        ...

    def wait(self, known: int) -> None:
        """Waits until more than `known` fragments are ready to be taken, or a worker is replaced."""
        ...

    def take(self, fragment: Fragment) -> None:
        """Gives a finished fragment back; its memory may be overwritten from here on."""
        ...

    @property
    def clocks(self) -> NDArray[np.int64]:
        """Steps that were taken from each worker."""
        ...

    def set_clock(self, clock: int) -> None:
        """Continues after so many steps; to be called before the first fragment."""
        ...


def fragment_shapes(plan: FragmentPlan, num_envs: int, shapes: Shapes) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of each field of a fragment of `num_envs` environments."""
    one, more, n = plan.steps, plan.steps + 1, num_envs
    actions, seen = shapes.actions, (shapes.observation, shapes.observation_type)
    integral = actions.masks > 0
    return {
        "observation": ((more, n, seen[0]), seen[1]),
        "action_mask": ((more, n, actions.masks), "bool"),
        "final_observation": ((one, n, seen[0]), seen[1]),
        "action": ((one, n, *actions.shape), "int32" if integral else "float32"),
        "log_prob": ((one, n), "float32"),
        "reward": ((one, n), "float32"),
        "terminated": ((one, n), "bool"),
        "truncated": ((one, n), "bool"),
        "lost": ((one, n), "bool"),
        "episode_stats": ((one, n, len(shapes.episode_stats)), "float64"),
        **{name: ((steps, n, *shape), kind) for name, (steps, shape, kind) in plan.more.items()},
    }


def fragment_layout(plan: FragmentPlan, num_envs: int, shapes: Shapes, workers: int) -> tuple[list[Place], int]:
    """Places of the shared memory of local workers, and its size in bytes; S slots, W workers."""
    slots, size = plan.limit, plan.policy["size"] + 2 * plan.policy["inputs"]
    fields = {name: ((slots, *shape), kind) for name, (shape, kind) in fragment_shapes(plan, num_envs, shapes).items()}
    fields |= {
        "delivered": ((slots, num_envs), "int64"),  # episodes begun at the end of a fragment
        "episodes": ((num_envs,), "int64"),  # the same up to the latest step
        "seed": ((num_envs,), "int64"),
        "index": ((num_envs,), "int64"),
        "keys": ((num_envs,), "uint64"),
        "policy": ((2, size), "float32"),  # weights, shift and scale of two versions
        "stamp": ((2,), "int64"),  # their versions; −1 while they are written
        "newest": ((1,), "int64"),
        "lead": ((1,), "int64"),  # fragments that a worker may have finished and that are not taken
        "clock": ((1,), "int64"),  # steps before the first fragment
        "done": ((workers,), "int64"),  # steps played
        "begun": ((workers,), "int64"),  # fragments begun
        "taken": ((workers,), "int64"),  # fragments taken by the learner
        "version": ((workers, slots), "int64"),
        "granted": ((workers,), "int64"),  # newest version when the latest fragment was taken
        "ready": ((workers,), "bool"),
        "asleep": ((workers + 1,), "bool"),  # the parent last
        "busy": ((workers,), "float64"),  # seconds of work
        "closing": ((1,), "bool"),
    }
    return places_of(fields)
