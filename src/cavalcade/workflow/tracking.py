"""What an environment with workflows has in common with any other such: orders are assigned, counts are saved."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.contract import Environment, SavedState
from cavalcade.errors import StateError, one_of
from cavalcade.workflow.compliance import ALIGNMENTS, FIGURES, Settings, Track
from cavalcade.workflow.orders import Order, Subtasks, ranks

_PREFIX = "workflow_"  # of tracked fields in a saved state


class WorkflowEnvironment(Environment):
    """A batch in which each environment has an order of subtasks.

    The reward is that of the task plus the alignment bonus; `figures` has them apart for each episode that ends, with
    its compliance.
    """

    figure_names = FIGURES
    subtasks: Subtasks
    settings: Settings
    track: Track

    def assign(
        self,
        environments: slice,
        *,
        order: Order | None,
        seed: int,
        shown: bool = True,
        alignment: str = "none",
        weight: float = 0.0,
    ) -> None:
        """Gives environments an order, or a new random one in each episode, and begins the first episode of a seed."""
        rows, t = np.arange(self.spec.num_envs)[environments], self.track
        t.shuffled[rows] = order is None
        if order is not None:
            t.rank[rows] = ranks([order])[0]
        t.shown[rows] = shown
        t.alignment[rows] = one_of("alignment", alignment, ALIGNMENTS)
        t.weight[rows] = weight
        self._begin_first(rows, seed)

    @abstractmethod
    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        """Begins the first episodes of a seed in some environments, numbered from 0 among themselves."""

    def _saved_track(self, rows: NDArray[np.int64]) -> SavedState:
        return {_PREFIX + name: getattr(self.track, name)[rows].copy() for name in Track._fields}

    def _check_track(self, saved: SavedState, num_envs: int) -> None:
        for name in Track._fields:
            mine, theirs = getattr(self.track, name), saved.get(_PREFIX + name)
            if theirs is None or theirs.dtype != mine.dtype or theirs.shape != (num_envs, *mine.shape[1:]):
                raise StateError(f"{_PREFIX + name} of the saved state is missing or does not fit {num_envs} games")
        if (np.sort(saved[_PREFIX + "rank"], axis=1) != np.arange(len(self.subtasks))).any():
            raise StateError(f"{_PREFIX}rank of the saved state has rows that are no order")

    def _load_track(self, saved: SavedState, rows: NDArray[np.int64]) -> None:
        for name in Track._fields:
            getattr(self.track, name)[rows] = saved[_PREFIX + name]
