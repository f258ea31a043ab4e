"""Means of the statistics of episodes with orders, by group."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cavalcade.workflow.compliance import EPISODE_STATS, MEASURES

# The name of compliance by each measure.
COMPLIANCE = dict(zip(MEASURES, ("compliance", "true_compliance", "choice", "original"), strict=True))
_POOLED = {name: EPISODE_STATS.index(name) for name in ("compliance", "true_compliance", "choice")}
_CHANCE, _COUNTED = EPISODE_STATS.index("chance"), EPISODE_STATS.index("counted")


def pooled_compliance(trainings: Iterable[tuple[float, float]]) -> float:
    """Compliance over all decisions, from pairs (compliance, counted decisions); NaN if none counted."""
    counted = [(compliance, n) for compliance, n in trainings if n]
    total = sum(n for _, n in counted)
    return sum(compliance * n for compliance, n in counted) / total if total else math.nan


def episode_means(episode_stats: NDArray, names: tuple[str, ...], group: NDArray, groups: int) -> dict[str, NDArray]:
    """Means by name over the episodes of each group, (groups,); NaN where a group has none.

    episode_stats: (n, F) with those names; group: (n,). Compliance is kept / counted over all decisions of the group,
    so an episode is weighted by its decisions; `original` is the mean over episodes, as in the original scripts.
    """

    def total(values: NDArray) -> NDArray:
        return np.bincount(group, weights=values, minlength=groups)

    with np.errstate(invalid="ignore", divide="ignore"):
        episodes = np.bincount(group, minlength=groups).astype(np.float64)
        found = {name: total(column) / episodes for name, column in zip(names, episode_stats.T, strict=True)}
        for name, i in (*_POOLED.items(), ("chance", _CHANCE)):
            counted = episode_stats[:, _COUNTED if name == "chance" else i + 1]
            found[name] = total(np.nan_to_num(episode_stats[:, i]) * counted) / total(counted)
    return found
