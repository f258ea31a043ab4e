"""The complete state of a training: policy, optimiser, games and counters as one consistent object.

Checkpoints, resume, ranks and Ray tasks use nothing else.
"""

from collections.abc import Mapping
from typing import NamedTuple

from numpy.typing import NDArray
from torch import Tensor


class Counters(NamedTuple):
    """Progress of a training."""

    clock: int  # steps per environment
    updates: int


class Snapshot(NamedTuple):
    """Everything that a training changes."""

    policy: Mapping[str, Tensor]  # weights by name
    learner: Mapping[str, Tensor]  # optimiser state, running moments, counters
    games: Mapping[str, NDArray]  # saved environments, one row each
    counters: Counters


def select(whole: Snapshot, policies: list[int], environments: NDArray) -> Snapshot:
    """The part of a snapshot that belongs to some policies of a population and their environments."""
    return Snapshot(
        {name: tensor[policies] for name, tensor in whole.policy.items()},
        {name: tensor[policies] for name, tensor in whole.learner.items()},
        {name: array[environments] for name, array in whole.games.items()},
        whole.counters,
    )
