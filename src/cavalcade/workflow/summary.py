"""Means of what is known of episodes with orders, group by group."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cavalcade.workflow.compliance import FIGURES, MEASURES

# The name that compliance has by each measure.
COMPLIANCE = dict(zip(MEASURES, ("compliance", "true_compliance", "choice", "original"), strict=True))
_POOLED = {name: FIGURES.index(name) for name in ("compliance", "true_compliance", "choice")}
_CHANCE, _COUNTED = FIGURES.index("chance"), FIGURES.index("counted")


def pooled_compliance(trainings: Iterable[tuple[float, float]]) -> float:
    """Compliance over all decisions, from pairs of compliance and decisions that counted; not a number if none did."""
    counted = [(compliance, n) for compliance, n in trainings if n]
    total = sum(n for _, n in counted)
    return sum(compliance * n for compliance, n in counted) / total if total else math.nan


def episode_means(figures: NDArray, names: tuple[str, ...], group: NDArray, groups: int) -> dict[str, NDArray]:
    """Means by name over the episodes of each group, (groups,); not a number where a group has none.

    figures: (n, F) with those names; group: (n,). Compliance is kept / counted over all decisions of the group, so that
    an episode weighs as much as it has decisions; `original` is the mean over episodes, as in the scripts it is from.
    """

    def total(values: NDArray) -> NDArray:
        return np.bincount(group, weights=values, minlength=groups)

    with np.errstate(invalid="ignore", divide="ignore"):
        episodes = np.bincount(group, minlength=groups).astype(np.float64)
        found = {name: total(column) / episodes for name, column in zip(names, figures.T, strict=True)}
        for name, i in (*_POOLED.items(), ("chance", _CHANCE)):
            counted = figures[:, _COUNTED if name == "chance" else i + 1]
            found[name] = total(np.nan_to_num(figures[:, i]) * counted) / total(counted)
    return found
