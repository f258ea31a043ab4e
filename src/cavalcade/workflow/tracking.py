"""What an environment with workflows has in common with any other such: orders are assigned, counts are saved."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from cavalcade.envs.contract import Environment, SavedState
from cavalcade.errors import StateError, one_of
from cavalcade.workflow.compliance import ALIGNMENTS, FIGURES, Settings, Track, figure_names
from cavalcade.workflow.enforcement import MASKS, next_multipliers
from cavalcade.workflow.orders import Order, Subtasks, ranks

_PREFIX = "workflow_"  # of tracked fields in a saved state
_COMPLIANCE, _COUNTED = FIGURES.index("compliance"), FIGURES.index("counted")


class WorkflowEnvironment(Environment):
    """A batch in which each environment has an order of subtasks.

    The reward is that of the task plus the alignment bonus; `figures` has them apart for each episode that ends, with
    its compliance.
    """

    subtasks: Subtasks
    settings: Settings
    track: Track

    def __init_subclass__(cls):
        """Names what is known of an episode."""
        super().__init_subclass__()
        cls.figure_names = figure_names(cls.subtasks)

    def assign(
        self,
        environments: slice,
        *,
        order: Order | None,
        seed: int,
        shown: bool = True,
        mask: str = "none",
        alignment: str = "none",
        weight: float = 0.0,
    ) -> None:
        """Gives environments an order, or a new random one in each episode, and begins the first episode of a seed."""
        rows = self.give_order(environments, order=order, shown=shown, mask=mask, alignment=alignment, weight=weight)
        self._begin_first(rows, seed)

    def give_order(
        self,
        environments: slice,
        *,
        order: Order | None,
        shown: bool = True,
        mask: str = "none",
        alignment: str = "none",
        weight: float = 0.0,
    ) -> NDArray[np.int64]:
        """Gives environments an order, or a new random one in each episode, from their next reset on."""
        rows, t = np.arange(self.spec.num_envs)[environments], self.track
        codes = one_of("mask", mask, MASKS), one_of("alignment", alignment, ALIGNMENTS)
        t.shuffled[rows] = order is None
        if order is not None:
            t.rank[rows] = ranks([order])[0]
        t.shown[rows] = shown
        t.mask[rows], t.alignment[rows] = codes
        t.weight[rows] = weight
        return rows

    def adapt_multipliers(self, policy: NDArray, figures: NDArray, policies: int, threshold: float) -> NDArray:
        """Moves each policy's cost of a violation (its `weight`) by the compliance of its episodes; returns them, (P,).

        policy: (n,), whose episodes these were; figures: (n, F), what is known of them.
        """
        counted = figures[:, _COUNTED]
        kept = np.nan_to_num(figures[:, _COMPLIANCE]) * counted
        kept, counted = (np.bincount(policy, weights=x, minlength=policies) for x in (kept, counted))
        weight = self.track.weight.reshape(policies, -1)
        weight[:] = next_multipliers(weight[:, 0].astype(np.float64), kept, counted, threshold)[:, None]
        return weight[:, 0]

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
