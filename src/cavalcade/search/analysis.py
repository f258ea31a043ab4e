"""Analysis of a search: were orders followed, do they matter, which is best, what is the effect of each precedence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from cavalcade.search.config import SearchConfig
from cavalcade.search.members import CONFIRM, CONTROL, ORDER, PLAIN, SEARCHING, Result
from cavalcade.search.verdict import (
    ALPHA,
    LEVEL,
    Interval,
    Verdict,
    bounds,
    difference,
    iqm,
    judge,
    percentiles,
    resampled,
    sentence,
)
from cavalcade.workflow.orders import Order, Subtasks, classes, precedences
from cavalcade.workflow.summary import pooled_compliance

_MOST_UNFOLLOWED = 0.1  # share of orders; above it, the manipulation failed


class Ranked(NamedTuple):
    """An order and its statistics."""

    order: int
    mean: float  # posterior
    deviation: float  # standard deviation of the posterior
    trainings: int
    score: float  # mean of its scores in the search, NaN if it was not trained
    compliance: float  # over all its trainings, by Blue's table; NaN if no decision counted
    counted: float  # decisions per episode that counted
    true_compliance: float
    binding: float  # decisions per episode in which it forbade something
    confirmed: float  # IQM of its confirmation trainings, NaN without any …
    low: float  # … and its 95 % interval
    high: float
    followed: bool


class Explained(NamedTuple):
    """Variance components of scores between and within orders: one-way analysis of repeated trainings."""

    orders: int
    trainings: int
    share: float  # of the variance, between orders
    between: float  # standard deviation between orders
    within: float  # standard deviation between trainings of one order


class Effect(NamedTuple):
    """Gain in score of orders that put a before b, all else equal; corrected for the number of pairs."""

    a: str
    b: str
    mean: float
    low: float
    high: float
    binding: float  # decisions per episode that this pair bound


class Check(NamedTuple):
    """The manipulation check: did orders change what policies do?"""

    trials: dict[int, list[float]]  # scores of comparable trainings from scratch, by followed order
    unfollowed: list[int]  # orders that are excluded
    confirmed: bool  # whether trials are those of the confirmation
    classes: dict[int, int]  # by order: its class, named by the first order that binds identically
    bound: NDArray  # binding decisions per episode, by pair of subtasks

    @property
    def units(self) -> dict[int, list[float]]:
        """Scores by class: orders that never bind differently are equivalent."""
        return by_class(self.trials, self.classes)

    @property
    def failed(self) -> bool:
        """Whether too many orders were not followed."""
        return len(self.unfollowed) > _MOST_UNFOLLOWED * (len(self.unfollowed) + len(self.trials))


@dataclass(frozen=True)
class Findings:
    """Results of the analysis of a search."""

    ranking: list[Ranked]
    explained: Explained | None
    effects: list[Effect]
    groups: dict[str, list[float]]  # scores of trainings from scratch: the best order, and each control
    best: int  # followed order with the highest posterior mean, −1 if there is none
    winner: bool  # whether it is better than plain PPO or than the runner-up
    headline: str  # sentence about the best order
    check: Check
    verdict: Verdict | None
    answer: str
    notes: list[str] = field(default_factory=list)


def explain(scores: Sequence[Sequence[float]]) -> Explained | None:
    """Variance components of groups of scores; None without two groups of at least two scores."""
    groups = [np.asarray(g, np.float64) for g in scores if len(g) >= 2]
    if len(groups) < 2:
        return None
    sizes = np.array([len(g) for g in groups])
    n, k = int(sizes.sum()), len(groups)
    within = sum(float(((g - g.mean()) ** 2).sum()) for g in groups) / (n - k)
    grand = np.concatenate(groups).mean()
    between = sum(len(g) * (float(g.mean()) - grand) ** 2 for g in groups) / (k - 1)
    size = (n - float((sizes**2).sum()) / n) / (k - 1)
    between = max(between - within, 0.0) / size
    share = between / (between + within) if between + within else 0.0
    return Explained(k, n, share, math.sqrt(between), math.sqrt(within))


def comparable(config: SearchConfig, results: Sequence[Result], purposes: Sequence[str]) -> list[Result]:
    """Trainings of orders at equal budget; with halving, those of the highest rung with at least two orders."""
    mine = [r for r in results if r.member.kind == ORDER and r.member.purpose in purposes]
    rung = top_rung(mine) if config.searcher == "halving" else None
    return [r for r in mine if rung is None or r.member.rung == rung]


def top_rung(results: Sequence[Result]) -> int:
    """The highest rung with at least two orders."""
    rungs = sorted({r.member.rung for r in results}, reverse=True)
    orders = {rung: {r.member.order for r in results if r.member.rung == rung} for rung in rungs}
    return next((rung for rung in rungs if len(orders[rung]) >= 2), rungs[-1] if rungs else 0)


def check(config: SearchConfig, orders: Sequence[Order], results: Sequence[Result]) -> Check:
    """Selects comparable trainings from scratch, and checks whether orders were followed."""
    trained = [r for r in results if r.member.kind == ORDER]
    bound = np.mean([r.bound for r in trained], axis=0) if trained else np.zeros(0)
    unit = classes(orders, np.flatnonzero(bound > 0))
    listed = config.searcher in ("exhaustive", "fixed", "random")  # their orders do not depend on scores
    found: list[tuple[int, bool, list[Result]]] = []
    for purpose in (CONFIRM, SEARCHING) if listed else (CONFIRM,):
        mine = [r for r in comparable(config, results, (purpose,)) if not r.member.start]
        counts = np.bincount([unit[r.member.order] for r in mine], minlength=len(orders))
        found.append((int((counts >= 2).sum()), purpose == CONFIRM, mine))
    _, confirmed, mine = max(found, key=lambda one: (one[0], bool(one[2])))
    by_order: dict[int, list[Result]] = {}
    for r in mine:
        by_order.setdefault(r.member.order, []).append(r)
    threshold = config.workflow.follow_threshold
    unfollowed = [order for order, rs in by_order.items() if pooled(rs) < threshold]
    trials = {order: [r.score for r in rs] for order, rs in by_order.items() if order not in unfollowed}
    return Check(trials, sorted(unfollowed), confirmed, dict(enumerate(unit)), bound)


def by_class(scores: Mapping[int, Sequence[float]], unit: Mapping[int, int] | Sequence[int]) -> dict[int, list[float]]:
    """Scores of orders, joined by class."""
    found: dict[int, list[float]] = {}
    for order, some in scores.items():
        found.setdefault(unit[order], []).extend(some)
    return found


def pooled(results: Sequence[Result], name: str = "compliance", counted: str = "counted") -> float:
    """Compliance over all decisions of some trainings; NaN if none counted."""
    return pooled_compliance((getattr(r, name), getattr(r, counted)) for r in results)


def verdict_of(config: SearchConfig, found: Check) -> Verdict | None:
    """The verdict on the checked trainings; None if there is nothing to compare."""
    if found.failed or len(found.units) < 2:
        return None
    return judge(found.units, margin=config.margin, looks=config.confirm_batches if found.confirmed else 1)


def findings(
    config: SearchConfig, subtasks: Subtasks, orders: Sequence[Order], results: Sequence[Result], belief: Any
) -> Findings:
    """Analyses the results of a search; belief: the posterior given all of them."""
    found = check(config, orders, results)
    verdict = verdict_of(config, found)
    groups: dict[str, list[float]] = {}
    for r in results:
        if r.member.purpose == CONTROL:
            groups.setdefault(r.member.kind, []).append(r.score)
    ranking = _ranking(config, results, belief, found)
    best, winner, headline = _best(found, ranking, groups.get(PLAIN, []), subtasks, orders)
    groups = {"best order": found.units.get(found.classes[best], []) if best >= 0 else []} | groups
    balanced = len(found.trials) == len(orders) and min(map(len, found.trials.values())) >= 2
    signs = precedences(orders)
    estimate = trained_effects if balanced else believed_effects
    intervals = estimate(signs, found.trials if balanced else belief)
    effects = [
        Effect(subtasks.names[a], subtasks.names[b], *interval, float(found.bound[k]) if len(found.bound) else 0.0)
        for k, ((a, b), interval) in enumerate(zip(subtasks.pairs(), intervals, strict=True))
    ]
    return Findings(
        ranking=ranking,
        explained=explain(list(found.units.values())),
        effects=effects,
        groups=groups,
        best=best,
        winner=winner,
        headline=headline,
        check=found,
        verdict=verdict,
        answer=_answer(config, found, verdict),
        notes=_notes(config, found, subtasks, orders),
    )


def _ranking(config: SearchConfig, results: Sequence[Result], belief: Any, found: Check) -> list[Ranked]:
    mine = comparable(config, results, (SEARCHING, CONFIRM))
    ranking = []
    for i in np.argsort(-belief.mean):
        rs = [r for r in mine if r.member.order == i]
        if not rs:
            continue
        searched = [r.score for r in rs if r.member.purpose == SEARCHING]
        again = interval_of([r.score for r in rs if r.member.purpose == CONFIRM])
        ranking.append(
            Ranked(
                order=int(i),
                mean=float(belief.mean[i]),
                deviation=float(belief.deviation[i]),
                trainings=len(searched),
                score=float(np.mean(searched)) if searched else math.nan,
                compliance=pooled(rs),
                counted=float(np.mean([r.counted for r in rs])),
                true_compliance=pooled(rs, "true_compliance", "true_counted"),
                binding=float(np.mean([r.binding for r in rs])),
                confirmed=again.estimate,
                low=again.low,
                high=again.high,
                followed=not pooled(rs) < config.workflow.follow_threshold,
            )
        )
    return ranking


def interval_of(scores: Sequence[float]) -> Interval:
    """IQM of scores with its 95 % interval; NaN without scores."""
    if not len(scores):
        return Interval(math.nan, math.nan, math.nan)
    rng = np.random.Generator(np.random.Philox(key=0))
    return percentiles(resampled(scores, rng), float(iqm(np.asarray(scores))), len(scores))


def _best(
    found: Check, ranking: Sequence[Ranked], plain: Sequence[float], subtasks: Subtasks, orders: Sequence[Order]
) -> tuple[int, bool, str]:
    """The best order, whether it beats plain PPO or the runner-up, and a sentence about it.

    Comparisons are corrected for the number of classes that the best was chosen from.
    """
    followed = [r.order for r in ranking if r.followed and (r.order in found.trials or not found.trials)]
    if not followed:
        return -1, False, "no order was followed"
    best, units = followed[0], found.units
    name = subtasks.name_of(orders[best])
    mine = units.get(found.classes[best], [])
    level = LEVEL / max(1, len(units))
    rivals: list[tuple[str, Sequence[float]]] = [("plain PPO", plain)] if plain else []
    second = next((order for order in followed if found.classes[order] != found.classes[best]), None)
    if second is not None:
        rivals.append((f"the runner-up {subtasks.name_of(orders[second])}", units.get(found.classes[second], [])))
    said, wins = [], False
    for rival, scores in rivals:
        if len(mine) and len(scores):
            d = difference(mine, scores, level=level)
            wins |= d.low > 0
            word = "better than" if d.low > 0 else "worse than" if d.high < 0 else "not distinguishable from"
            said.append(f"{word} {rival} ({d.estimate:+.2f}, {bounds(d.low, d.high, sign='+')})")
    if wins:
        return best, True, f"winner: {name}; {'; '.join(said)}"
    if not said:
        return best, False, f"highest: {name}; not compared with anything"
    names = " or ".join(rival for rival, scores in rivals if len(scores))
    return best, False, f"no order is better than {names}; the highest, {name}, is {'; '.join(said)}"


def _answer(config: SearchConfig, found: Check, verdict: Verdict | None) -> str:
    many, trainings = len(found.trials), sum(map(len, found.trials.values()))
    if found.failed:
        threshold = config.workflow.follow_threshold
        return (
            f"Cannot tell whether the order matters: the orders were not followed ({len(found.unfollowed)} of "
            f"{many + len(found.unfollowed)} have a compliance below {threshold:g})."
        )
    if many and not (found.bound > 0).any():
        return "No, the order does not matter here: no decision was ever bound by an order."
    if verdict is None and many > 1:
        return (
            f"Cannot tell whether the order matters: the {many} orders compared never bound a decision differently; "
            "they are one and the same."
        )
    units = len(found.units)
    same = f" in {units} classes that bind differently" if units < many else ""
    verdict = verdict or Verdict("cannot tell", 1.0, ALPHA, config.margin, None, -1)
    return sentence(verdict, f"{many} orders{same}, {trainings} trainings from scratch")


def _notes(config: SearchConfig, found: Check, subtasks: Subtasks, orders: Sequence[Order]) -> list[str]:
    """Notes on the manipulation check."""
    notes = []
    if found.unfollowed:
        names = ", ".join(subtasks.text(orders[order]) for order in found.unfollowed)
        notes.append(f"not followed (compliance below {config.workflow.follow_threshold:g}), left out: {names}")
    never = [name for name, n in zip(subtasks.pair_names(), found.bound, strict=False) if not n]
    if never:
        count = len(set(found.classes.values()))
        notes.append(
            f"never bound, so negative controls: {', '.join(never)}; the {len(orders)} orders are {count} classes"
        )
    return notes


def partial_contrasts(signs: NDArray) -> NDArray:
    """Weights of orders that give the effect of each precedence, all else equal: least squares, (pairs, orders).

    Precedences are correlated (what comes before b comes before c more often if b does), so plain differences of means
    would attribute effects to precedences that have none.
    """
    return 2 * np.linalg.pinv(np.column_stack([np.ones(len(signs)), signs]))[1:]


def believed_effects(signs: NDArray, belief: Any) -> list[Interval]:
    """Effect of each precedence from the posterior over all orders, corrected for the number of pairs."""
    z = float(-special.ndtri(LEVEL / signs.shape[1] / 2))
    found = []
    for contrast in partial_contrasts(signs):
        deviation = math.sqrt(max(float(contrast @ belief.covariance @ contrast), 0.0))
        mean = float(contrast @ belief.mean)
        found.append(Interval(mean, mean - z * deviation, mean + z * deviation))
    return found


def trained_effects(signs: NDArray, trials: Mapping[int, Sequence[float]]) -> list[Interval]:
    """Effect of each precedence from the IQMs of orders, if every order was trained.

    Trainings are resampled within each order; the spread is corrected for the few trainings of each, and the level for
    the number of precedences.
    """
    rng = np.random.Generator(np.random.Philox(key=0))
    few = min(map(len, trials.values()))
    draws = np.stack([resampled(trials[order], rng) for order in range(len(signs))])  # (orders, R)
    means = np.array([float(iqm(np.asarray(trials[order]))) for order in range(len(signs))])
    contrasts = partial_contrasts(signs)
    tail, wider = LEVEL / signs.shape[1] / 2, math.sqrt(few / (few - 1))
    found = []
    for estimate, row in zip(contrasts @ means, contrasts @ (draws - means[:, None]), strict=True):
        low, high = np.quantile(row, [tail, 1 - tail])
        found.append(Interval(float(estimate), float(estimate + wider * low), float(estimate + wider * high)))
    return found
