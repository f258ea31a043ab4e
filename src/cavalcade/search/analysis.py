"""What a search has found: a ranking, what the order explains at all, the effect of each precedence, an answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cavalcade.search.members import CONFIRM, CONTROL, ORDER, SEARCH, Result
from cavalcade.statistics import half_interval
from cavalcade.workflow.orders import Order, Subtasks, precedences

_LEVEL = 0.05
_SIZEABLE = 0.25  # share of the variance that would be an effect worth having …
_POWER = 0.9  # … and the chance of finding it that it takes to say that there is none


class Ranked(NamedTuple):
    """An order and what is known of it."""

    order: int
    mean: float  # posterior
    deviation: float
    trainings: int
    score: float  # mean of its scores in the search, not a number if it was not trained
    compliance: float
    confirmed: float  # mean of trainings from scratch on other games, not a number if there were none
    interval: float  # half the width of the 95 % interval of that


class Explained(NamedTuple):
    """How much of the variance of scores the order explains: one-way analysis of repeated trainings."""

    orders: int
    trainings: int
    share: float  # of the variance, between orders
    low: float  # 95 % interval of the share
    high: float
    p: float  # of the F test that it explains nothing
    between: float  # deviation between orders
    within: float  # deviation between trainings of one order
    power: float  # chance that a share of `_SIZEABLE` would have been found


class Effect(NamedTuple):
    """How much better orders are that put a before b than those that do not."""

    a: str
    b: str
    mean: float
    deviation: float


@dataclass(frozen=True)
class Findings:
    """Everything a search has to say."""

    ranking: list[Ranked]
    explained: Explained | None
    effects: list[Effect]
    groups: dict[str, list[float]]  # scores of trainings from scratch: the winner, and each control
    winner: int
    answer: str


def explain(scores: Sequence[Sequence[float]]) -> Explained | None:
    """Share of the variance between groups, from at least two groups of at least two."""
    groups = [np.asarray(g, np.float64) for g in scores if len(g) >= 2]
    if len(groups) < 2:
        return None
    sizes = np.array([len(g) for g in groups])
    n, k = int(sizes.sum()), len(groups)
    within = sum(float(((g - g.mean()) ** 2).sum()) for g in groups) / (n - k)
    grand = np.concatenate(groups).mean()
    between = sum(len(g) * (float(g.mean()) - grand) ** 2 for g in groups) / (k - 1)
    size = (n - float((sizes**2).sum()) / n) / (k - 1)
    if within == 0:
        exact = float(between > 0)
        return Explained(k, n, exact, exact, exact, 1 - exact, math.sqrt(between / size), 0.0, 1.0)
    f = between / within

    def share(ratio: float) -> float:
        return float(np.clip((ratio - 1) / (ratio - 1 + size), 0, 1))

    low, high = (share(f / float(stats.f.ppf(q, k - 1, n - k))) for q in (1 - _LEVEL / 2, _LEVEL / 2))
    deviation = math.sqrt(max(between - within, 0) / size)
    limit = float(stats.f.isf(_LEVEL, k - 1, n - k))
    power = float(stats.f.sf(limit / (1 + size * _SIZEABLE / (1 - _SIZEABLE)), k - 1, n - k))
    p = float(stats.f.sf(f, k - 1, n - k))
    return Explained(k, n, share(f), low, high, p, deviation, math.sqrt(within), power)


def effects(subtasks: Subtasks, orders: Sequence[Order], mean: NDArray, covariance: NDArray) -> list[Effect]:
    """The effect of each precedence, from the posterior over all orders."""
    signs = precedences(orders)
    found = []
    for k, (a, b) in enumerate(subtasks.pairs()):
        contrast = np.where(signs[:, k] > 0, 1.0, -1.0) / (len(orders) / 2)
        deviation = math.sqrt(max(float(contrast @ covariance @ contrast), 0.0))
        found.append(Effect(subtasks.names[a], subtasks.names[b], float(contrast @ mean), deviation))
    return found


def findings(
    subtasks: Subtasks, orders: Sequence[Order], results: Sequence[Result], belief: Any, winner: int, listed: bool
) -> Findings:
    """What the results of a search say; listed: its orders did not depend on scores, so repeats of it count too."""
    searched = [r for r in results if r.member.purpose == SEARCH and r.member.kind == ORDER]
    confirmed = [r for r in results if r.member.purpose == CONFIRM]
    ranking = []
    for i in np.argsort(-belief.mean):
        mine = [r for r in searched if r.member.order == i]
        again = [r.heldout for r in confirmed if r.member.order == i]
        if not mine and not again:
            continue
        compliance = [r.compliance for r in mine if not math.isnan(r.compliance)]
        ranking.append(
            Ranked(
                order=int(i),
                mean=float(belief.mean[i]),
                deviation=float(belief.deviation[i]),
                trainings=len(mine),
                score=_mean([r.score for r in mine]),
                compliance=_mean(compliance),
                confirmed=_mean(again),
                interval=half_interval(again),
            )
        )
    groups: dict[str, list[float]] = {"winner": [r.heldout for r in confirmed if r.member.order == winner]}
    for r in results:
        if r.member.purpose == CONTROL:
            groups.setdefault(r.member.kind, []).append(r.heldout)
    explained = explained_by_order(results, (SEARCH, CONFIRM) if listed else (CONFIRM,))
    return Findings(
        ranking, explained, effects(subtasks, orders, belief.mean, belief.covariance), groups, winner, answer(explained)
    )


def explained_by_order(results: Sequence[Result], purposes: Sequence[str]) -> Explained | None:
    """What the order explains, from repeated trainings from scratch; of the purposes, the one with most orders."""
    found = []
    for purpose in purposes:
        by_order: dict[int, list[float]] = {}
        for r in results:
            if r.member.purpose == purpose and r.member.kind == ORDER and not r.member.start:
                by_order.setdefault(r.member.order, []).append(r.heldout)
        found.append(explain(list(by_order.values())))
    return max((e for e in found if e), key=lambda e: e.orders, default=None)


def answer(e: Explained | None) -> str:
    """Does the order matter here? Yes, no, or cannot tell."""
    if e is None:
        return "Cannot tell whether the order matters: it takes at least two trainings of at least two orders."
    facts = (
        f"{e.orders} orders, {e.trainings} trainings from scratch: the order explains {e.share:.0%} of the variance of "
        f"scores (95 % interval {e.low:.0%} to {e.high:.0%}, F test p = {e.p:.2g}); deviation {e.between:.2f} between "
        f"orders, {e.within:.2f} between trainings of one order."
    )
    if e.p < _LEVEL:
        return f"Yes, the order matters here. {facts}"
    chance = f"a share of {_SIZEABLE:.0%} would have been found with a chance of {e.power:.0%}"
    if e.power >= _POWER:
        return f"No, the order does not matter here: {chance}. {facts}"
    return f"Cannot tell whether the order matters: no effect was found, but {chance} only. {facts}"


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan
