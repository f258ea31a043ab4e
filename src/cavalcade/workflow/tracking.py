"""The base class of environments with workflows: assigns orders, saves counts."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment, SavedState
from cavalcade.core.errors import StateError, one_of
from cavalcade.workflow.compliance import ALIGNMENTS, EPISODE_STATS, Settings, Track, episode_stat_names
from cavalcade.workflow.enforcement import MASKS, next_multipliers
from cavalcade.workflow.orders import Order, Subtasks, ranks

_PREFIX = "workflow_"  # of tracked fields in a saved state
_COMPLIANCE, _COUNTED = EPISODE_STATS.index("compliance"), EPISODE_STATS.index("counted")


class WorkflowEnvironment(Environment):
    """A batch in which each environment has an order of subtasks.

    The reward is that of the task plus the alignment bonus; `episode_stats` has both separately, and the compliance.
    """

    subtasks: Subtasks
    settings: Settings
    track: Track

    def __init_subclass__(cls):
        super().__init_subclass__()
        cls.episode_stat_names = episode_stat_names(cls.subtasks)

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
        """Assigns an order, or a new random one in each episode (None), and begins the first episodes of a seed."""
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
        """Assigns an order, or a new random one in each episode (None), from the next reset on; returns the rows."""
        rows, t = np.arange(self.spec.num_envs)[environments], self.track
        codes = one_of("mask", mask, MASKS), one_of("alignment", alignment, ALIGNMENTS)
        t.shuffled[rows] = order is None
        if order is not None:
            t.rank[rows] = ranks([order])[0]
        t.shown[rows] = shown
        t.mask[rows], t.alignment[rows] = codes
        t.weight[rows] = weight
        return rows

    def adapt_multipliers(self, policy: NDArray, episode_stats: NDArray, policies: int, threshold: float) -> NDArray:
        """Updates each policy's cost per violation (its `weight`) from the compliance of its episodes; returns (P,).

        policy: (n,), the policy that played each episode; episode_stats: (n, F).
        """
        counted = episode_stats[:, _COUNTED]
        kept = np.nan_to_num(episode_stats[:, _COMPLIANCE]) * counted
        kept, counted = (np.bincount(policy, weights=x, minlength=policies) for x in (kept, counted))
        weight = self.track.weight.reshape(policies, -1)
        weight[:] = next_multipliers(weight[:, 0].astype(np.float64), kept, counted, threshold)[:, None]
        return weight[:, 0]

    @abstractmethod
    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        """Begins the first episodes of a seed in the given environments, indexed from 0 in that order."""

    def _saved_track(self, rows: NDArray[np.int64]) -> SavedState:
        return {_PREFIX + name: getattr(self.track, name)[rows].copy() for name in Track._fields}

    def _check_track(self, saved: SavedState, num_envs: int) -> None:
        for name in Track._fields:
            mine, theirs = getattr(self.track, name), saved.get(_PREFIX + name)
            if theirs is None or theirs.dtype != mine.dtype or theirs.shape != (num_envs, *mine.shape[1:]):
                raise StateError(f"{_PREFIX + name} of the saved state is missing or does not fit {num_envs} games")
        if (np.sort(saved[_PREFIX + "rank"], axis=1) != np.arange(len(self.subtasks))).any():
            raise StateError(f"{_PREFIX}rank of the saved state has rows that are not orders")

    def _load_track(self, saved: SavedState, rows: NDArray[np.int64]) -> None:
        for name in Track._fields:
            getattr(self.track, name)[rows] = saved[_PREFIX + name]
