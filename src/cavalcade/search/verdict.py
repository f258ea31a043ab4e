"""Does the order matter? A distribution-free test, an effect size in points, and an answer from both.

Scores of trainings have heavy tails and unequal spreads. Orders are therefore compared by a permutation test of the
one-way F statistic on ranks, and effects are differences of interquartile means (IQM) with stratified bootstrap
intervals. The best and the worst of equal orders differ too: they are chosen on one half of the trainings and compared
on the other, once each way. Of many orders with few trainings each, the best tenth is compared with the worst tenth.

Yes: p < α and the interval of best − worst lies beyond the margin. No: the interval lies within ± margin. Otherwise
more trainings are needed. With several looks at the data each gets an equal share of α (Bonferroni). The answer is a
function of the numbers that are printed with it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

ALPHA = 0.01  # chance of "yes" where orders are equal, over all looks
LEVEL = 0.05  # 1 − coverage of intervals
_PERMUTATIONS = 20_000
_RESAMPLES = 10_000
_CHUNK = 4_000_000  # permuted numbers per batch
_MOST_NEEDED = 100_000  # trainings; above it, no number is given
_TENTH = 10
_LEAST = 4  # trainings that an interval needs; with three it would be too narrow

Answer = Literal["yes", "no", "cannot tell"]


class Interval(NamedTuple):
    """An estimate with its interval."""

    estimate: float
    low: float
    high: float


class Extremes(NamedTuple):
    """Difference between the best and the worst units."""

    each: int  # units at either end
    difference: Interval  # of units chosen on one half and compared on the other


class Verdict(NamedTuple):
    """The answer, and the numbers that it follows from."""

    answer: Answer
    p: float  # of the permutation test
    alpha: float  # level of this look
    margin: float
    extremes: Extremes | None  # None with too few trainings
    needed: int  # trainings that would decide, 0 where decided, −1 where no number can be given


def iqm(values: NDArray, axis: int = -1) -> NDArray:
    """Interquartile mean: the mean without the lowest and the highest quarter."""
    from scipy import stats  # takes most of a second to import

    return np.asarray(stats.trim_mean(values, 0.25, axis=axis))


def rank_test(groups: Sequence[Sequence[float]], seed: int = 0) -> float:
    """p-value of the permutation test that all groups have the same distribution, by the F statistic on ranks.

    F is monotone in Σ n_g r̄_g², r̄_g the mean rank of group g, which is compared between permutations.
    """
    sizes = np.array([len(group) for group in groups])
    if len(groups) < 2 or sizes.sum() <= len(groups):
        return 1.0
    from scipy import stats

    ranks = stats.rankdata(np.concatenate([np.asarray(group, np.float64) for group in groups]))
    starts, n = np.cumsum(sizes) - sizes, len(ranks)

    def statistic(rows: NDArray) -> NDArray:
        return (np.add.reduceat(rows, starts, axis=1) ** 2 / sizes).sum(axis=1)

    observed = statistic(ranks[None])[0]
    rng = np.random.Generator(np.random.Philox(key=seed))
    beyond, left = 0, _PERMUTATIONS
    while left:
        rows = min(left, max(1, _CHUNK // n))
        beyond += int((statistic(rng.permuted(np.tile(ranks, (rows, 1)), axis=1)) >= observed - 1e-9).sum())
        left -= rows
    return (1 + beyond) / (1 + _PERMUTATIONS)


def resampled(values: Sequence[float] | NDArray, rng: np.random.Generator) -> NDArray:
    """IQMs of bootstrap samples, (R,)."""
    given = np.asarray(values, np.float64)
    return iqm(given[rng.integers(len(given), size=(_RESAMPLES, len(given)))])


def percentiles(draws: NDArray, estimate: float, n: int, level: float = LEVEL) -> Interval:
    """Percentile interval of bootstrap draws, widened for samples of n (Hesterberg 2015, expanded percentiles).

    Otherwise intervals of few values would be too narrow: the tail becomes Φ(−√(n / (n − 1)) t), t the quantile of
    Student's distribution with n − 1 degrees of freedom.
    """
    if n < _LEAST:
        return Interval(estimate, -math.inf, math.inf)
    tail = float(special.ndtr(-math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, 1 - level / 2)))
    low, high = np.quantile(draws, [tail, 1 - tail])
    return Interval(estimate, float(low), float(high))


def difference(one: Sequence[float], other: Sequence[float], *, level: float = LEVEL, seed: int = 0) -> Interval:
    """IQM of one group of trainings minus that of another, with its interval."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    estimate = float(iqm(np.asarray(one)) - iqm(np.asarray(other)))
    draws = resampled(one, rng) - resampled(other, rng)
    return percentiles(draws, estimate, min(len(one), len(other)), level)


def extremes(groups: Mapping[int, Sequence[float]], *, level: float = LEVEL, seed: int = 0) -> Extremes | None:
    """Best − worst: chosen on one half of the trainings of each unit and compared on the other, both ways."""
    units = [unit for unit, scores in groups.items() if len(scores) >= 2]
    if len(units) < 2:
        return None
    each = max(1, len(units) // _TENTH)
    halves = [{unit: np.asarray(groups[unit], np.float64)[half::2] for unit in units} for half in (0, 1)]
    rng = np.random.Generator(np.random.Philox(key=seed))
    draws, estimates, sizes = np.zeros(_RESAMPLES), [], []
    for chosen_on, compared_on in (halves, halves[::-1]):
        above, below = (np.concatenate([compared_on[unit] for unit in end]) for end in _ends(chosen_on, each))
        estimates.append(float(iqm(above) - iqm(below)))
        draws += (resampled(above, rng) - resampled(below, rng)) / 2
        sizes += [len(above), len(below)]
    return Extremes(each, percentiles(draws, float(np.mean(estimates)), min(sizes), level))


def _ends(groups: Mapping[int, NDArray], each: int) -> tuple[list[int], list[int]]:
    """The `each` units with the highest and the lowest IQM."""
    ranked = sorted(groups, key=lambda unit: -float(iqm(groups[unit])))
    return ranked[:each], ranked[-each:]


def share_of_level(looks: int) -> float:
    """The level of each of several looks, truncated to two digits, as it is printed."""
    digits = 10 ** (1 - math.floor(math.log10(ALPHA / looks)))
    return math.floor(ALPHA / looks * digits * (1 + 1e-12)) / digits


def judge(groups: Mapping[int, Sequence[float]], *, margin: float, looks: int = 1, seed: int = 0) -> Verdict:
    """The verdict from the scores of each unit's trainings; looks: maximum number of looks at the data."""
    alpha = share_of_level(looks)
    kept = {unit: scores for unit, scores in groups.items() if len(scores)}
    p = rank_test(list(kept.values()), seed)
    found = extremes(kept, seed=seed)
    if found is None:
        return Verdict("cannot tell", p, alpha, margin, None, -1)
    d = found.difference  # the rounded numbers decide, as they are printed
    p, low, high = max(p, float(f"{p:.2g}")), min(d.low, round(d.low, 2)), max(d.high, round(d.high, 2))
    found = found._replace(difference=Interval(d.estimate, low, high))
    if p < alpha and low > margin:
        return Verdict("yes", p, alpha, margin, found, 0)
    if -margin < low and high < margin:
        return Verdict("no", p, alpha, margin, found, 0)
    trainings = sum(len(scores) for scores in kept.values())
    return Verdict("cannot tell", p, alpha, margin, found, _needed(found.difference, margin, trainings))


def _needed(found: Interval, margin: float, trainings: int) -> int:
    """Trainings after which an interval that shrinks with the root of their number clears the margin."""
    room = abs(abs(found.estimate) - margin)
    width = (found.high - found.low) / 2
    if not math.isfinite(width) or room == 0:
        return -1
    needed = trainings * max((width / room) ** 2, 1.0) + 1
    return -1 if needed > _MOST_NEEDED else math.ceil(needed)


def bounds(low: float, high: float, name: str = "", sign: str = "") -> str:
    """Bounds of an interval, after its name; too few trainings have none."""
    return f"{name}{low:{sign}.2f} to {high:{sign}.2f}" if math.isfinite(high - low) else "no interval"


def sentence(v: Verdict, what: str) -> str:
    """The answer as a sentence; what: the trainings behind it, e.g. "6 orders, 60 trainings"."""
    if v.extremes is None:
        return f"Cannot tell whether the order matters: {what}; it takes at least two trainings of two orders."
    d = v.extremes.difference
    which = "best − worst" if v.extremes.each == 1 else f"best tenth − worst tenth ({v.extremes.each} each)"
    facts = (
        f"{which} {d.estimate:.2f} points ({bounds(d.low, d.high, '95 % interval ')}), permutation test p = "
        f"{v.p:.2g} (level {v.alpha:g}); {what}."
    )
    if v.answer == "yes":
        return f"Yes, the order matters here, by more than {v.margin:g} point{'s' * (v.margin != 1)}: {facts}"
    if v.answer == "no":
        return f"No, the order does not matter here, not by {v.margin:g} point{'s' * (v.margin != 1)}: {facts}"
    more = f"about {v.needed:,} trainings would decide" if v.needed > 0 else "no number of trainings can be named"
    return f"Cannot tell whether the order matters: {facts[:-1]}; {more}."
