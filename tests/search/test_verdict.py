"""The verdict of a search: its test, its intervals, and the answer that follows from the numbers printed with it."""

import itertools
import math
import re

import numpy as np
import pytest
from scipy import stats

from cavalcade.search import verdict
from cavalcade.search.verdict import (
    ALPHA,
    Extremes,
    Interval,
    Verdict,
    difference,
    extremes,
    iqm,
    judge,
    percentiles,
    rank_test,
    sentence,
)

TAILS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "student": lambda rng, n: rng.standard_t(2, size=n),
    "lognormal": lambda rng, n: rng.lognormal(0, 1, size=n),
    "unequal variances": lambda rng, n: rng.normal(size=n) * rng.choice([0.01, 1.0, 20.0]),
    "constant": lambda rng, n: np.full(n, rng.choice([0.0, 0.3, 2.0])),
    "ties": lambda rng, n: rng.integers(-1, 2, size=n).astype(float),
}


@pytest.fixture
def quick(monkeypatch):
    """Fewer permutations and resamples, where many tables are judged."""
    monkeypatch.setattr(verdict, "_PERMUTATIONS", 999)
    monkeypatch.setattr(verdict, "_RESAMPLES", 500)


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.3])
def test_the_rank_test_agrees_with_kruskal_on_large_samples(shift):
    rng = np.random.default_rng(1)
    groups = [rng.normal(shift * i, 1 + i, size=n) for i, n in enumerate((60, 90, 30, 120))]
    assert rank_test(groups) == pytest.approx(stats.kruskal(*groups).pvalue, abs=0.02)


@pytest.mark.parametrize(
    "groups",
    [([0.3, 1.2], [2.5, 3.1, 0.9], [4.0, 5.5]), ([1.0, 1.0, 2.0, 7.0], [2.0, 3.0, 3.0]), ([0.0, 9.0], [1.0, 2.0])],
)
def test_the_rank_test_agrees_with_all_permutations(groups):
    values = np.concatenate(groups)
    cuts = np.cumsum([len(group) for group in groups])[:-1]

    def f(rows):
        """The one-way F statistic of ranks, as textbooks have it; infinite where groups do not vary within."""
        parts = np.split(rows, cuts)
        between = sum(len(part) * (part.mean() - rows.mean()) ** 2 for part in parts) / (len(parts) - 1)
        within = sum(((part - part.mean()) ** 2).sum() for part in parts) / (len(rows) - len(parts))
        return between / within if within > 1e-12 else math.inf

    ranks = stats.rankdata(values)
    observed = f(ranks)
    exact = np.mean([f(np.array(rows)) >= observed - 1e-9 for rows in itertools.permutations(ranks)])
    assert rank_test(groups) == pytest.approx(exact, abs=0.013)  # four standard errors of 20,000 draws


def test_the_rank_test_depends_on_ranks_alone_and_repeats_itself():
    rng = np.random.default_rng(2)
    groups = [rng.normal(i / 3, 1, size=6) for i in range(4)]
    p = rank_test(groups, seed=3)
    assert 1 / 20_001 <= p < 1
    assert rank_test([np.exp(5 * group) for group in groups], seed=3) == p
    assert rank_test(groups, seed=4) != p


def test_too_few_scores_to_test():
    assert rank_test([[1.0, 2.0, 3.0]]) == 1.0
    assert rank_test([[1.0], [2.0], [3.0]]) == 1.0


@pytest.mark.usefixtures("quick")
def test_the_size_of_the_rank_test_holds_under_heavy_tails():
    rng = np.random.default_rng(3)
    p = np.array([rank_test(rng.standard_t(2, size=(6, 5)), seed=i) for i in range(400)])
    assert (p < 0.01).mean() <= 0.025
    assert 0.25 < (p < 0.5).mean() * 0.6 < 0.35  # p is uniform
    found = [rank_test([rng.standard_t(2, size=8) + 4 * i for i in range(3)], seed=i) for i in range(50)]
    assert np.mean(np.array(found) < 0.01) > 0.9


def test_the_interquartile_mean_by_hand():
    assert iqm(np.array([100.0, 1, 2, 3, -50])) == 2
    assert iqm(np.array([9.0, 1, 2, 8, 4, 5, 6, 100, 3, -7])) == pytest.approx((2 + 3 + 4 + 5 + 6 + 8) / 6)
    assert iqm(np.array([5.0])) == 5
    np.testing.assert_allclose(iqm(np.array([[0.0, 1, 3, 99], [4, 4, 4, 0]])), [2, 4])


@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("tail", ["normal", "student"])
def test_intervals_of_differences_cover(monkeypatch, tail, n):
    """Plain percentiles of five heavy-tailed scores would cover 92 %."""
    monkeypatch.setattr(verdict, "_RESAMPLES", 1000)
    rng = np.random.default_rng(4)
    tables = [(TAILS[tail](rng, n) + 2, TAILS[tail](rng, n)) for _ in range(300)]
    found = [difference(*table, seed=i) for i, table in enumerate(tables)]
    assert np.mean([d.low <= 2 <= d.high for d in found]) >= 0.95
    assert all(d.low <= d.estimate <= d.high for d in found)
    assert [d.estimate for d in found] == pytest.approx([float(iqm(a) - iqm(b)) for a, b in tables])
    widths = [d.high - d.low for d in found]
    student = [2 * stats.t.ppf(0.975, n - 1) * math.hypot(a.std(ddof=1), b.std(ddof=1)) / n**0.5 for a, b in tables]
    assert np.median(widths) < 1.3 * np.median(student)  # no wider than they need to be


def test_a_lower_level_widens_an_interval_and_too_few_scores_have_none():
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(2, 8))
    wide, narrow = difference(one, other, level=0.005), difference(one, other)
    assert wide.low < narrow.low < narrow.estimate < narrow.high < wide.high
    assert difference([1.0, 2.0], other) == (pytest.approx(1.5 - float(iqm(other))), -math.inf, math.inf)
    draws = rng.normal(size=100_000)
    tail = stats.norm.cdf(-math.sqrt(6 / 5) * stats.t.ppf(0.975, 5))
    np.testing.assert_allclose(percentiles(draws, 0.0, 6)[1:], np.quantile(draws, [tail, 1 - tail]))
    assert percentiles(draws, 0.0, 100_000)[1:] == pytest.approx((-1.96, 1.96), abs=0.03)


@pytest.mark.parametrize(("units", "trainings"), [(2, 10), (8, 10), (20, 6)])
def test_the_best_of_equal_units_is_not_better_than_the_worst(monkeypatch, units, trainings):
    """The highest mean is above the lowest by selection alone; halves take that away."""
    monkeypatch.setattr(verdict, "_RESAMPLES", 200)
    rng = np.random.default_rng(6)
    estimates, naive, covered = [], [], 0
    for i in range(200):
        table = rng.normal(size=(units, trainings))
        d = extremes(dict(enumerate(table)), seed=i).difference
        estimates.append(d.estimate)
        covered += d.low <= 0 <= d.high
        naive.append(np.ptp(table.mean(axis=1)))
    error = np.std(estimates) / 200**0.5
    assert abs(np.mean(estimates)) < 3 * error
    assert np.mean(naive) > 7 * error
    assert covered >= 180


def test_the_difference_of_unequal_units_is_unbiased_and_covered(monkeypatch):
    monkeypatch.setattr(verdict, "_RESAMPLES", 200)
    rng = np.random.default_rng(7)
    means = (3.0, 0.0, 8.0, 5.0)
    found = [extremes({10 * u: rng.normal(m, 1, size=9) for u, m in enumerate(means)}, seed=i) for i in range(300)]
    estimates = [f.difference.estimate for f in found]
    assert abs(np.mean(estimates) - 8) < 3 * np.std(estimates) / 300**0.5
    assert sum(f.difference.low <= 8 <= f.difference.high for f in found) >= 280


def test_of_many_units_the_best_tenth_is_compared_with_the_worst():
    rng = np.random.default_rng(8)
    units = {int(u): u + 1e-3 * rng.normal(size=2) for u in rng.permutation(40)}
    found = extremes(units)
    assert found.each == 4
    assert found.difference.estimate == pytest.approx(36, abs=0.01)
    assert math.isfinite(found.difference.high)  # 4 units with one training in each half
    assert [extremes({u: [0.0, 1.0] for u in range(n)}).each for n in (2, 19, 20, 120)] == [1, 1, 2, 12]
    assert "best tenth − worst tenth (4 each) 36.0" in sentence(judge(units, margin=1.0), "40 orders")


def test_a_unit_with_one_training_is_tested_but_not_compared():
    groups = {0: [0.0, 0.1, 0.2, 0.3], 1: [5.0, 5.1, 5.2, 5.3], 2: [99.0], 3: []}
    found = judge(groups, margin=1.0)
    assert found.extremes.difference.estimate == pytest.approx(5.0)
    assert found.p == pytest.approx(rank_test(list(groups.values())[:3]), rel=0.05)
    assert extremes({0: [0.0, 1.0], 1: [3.0]}) is None
    alone = judge({0: [0.0, 1.0], 1: [3.0]}, margin=1.0)
    assert (alone.answer, alone.extremes, alone.needed) == ("cannot tell", None, -1)
    assert sentence(alone, "2 orders, 3 trainings") == (
        "Cannot tell whether the order matters: 2 orders, 3 trainings; it takes at least two trainings of two orders."
    )


def test_each_answer():
    rng = np.random.default_rng(9)
    apart = {u: rng.normal(3 * u, 0.5, size=10) for u in range(3)}
    equal = {u: rng.normal(0, 0.5, size=40) for u in range(3)}
    few = {u: rng.normal(0, 2, size=4) for u in range(3)}
    assert [judge(groups, margin=1.0).answer for groups in (apart, equal, few)] == ["yes", "no", "cannot tell"]
    assert judge(apart, margin=30.0).answer == "no"
    assert judge(apart, margin=6.0).answer == "cannot tell"
    assert "by more than 1 point: best − worst" in sentence(judge(apart, margin=1.0), "3 orders")
    assert "not by 0.5 points: best" in sentence(judge(equal, margin=0.5), "3 orders")


def test_looks_share_the_level():
    groups = {unit: [5.0 * unit + 0.1 * i for i in range(8)] for unit in (0, 1)}
    once = judge(groups, margin=1.0)
    assert (once.answer, once.alpha) == ("yes", ALPHA)
    assert 5e-5 < once.p < 1e-3  # 2 of 12,870 splits
    often = judge(groups, margin=1.0, looks=1000)
    assert (often.answer, often.alpha, often.p) == ("cannot tell", ALPHA / 1000, once.p)
    assert "(level 1e-05)" in sentence(often, "2 orders")


def test_the_trainings_named_shrink_the_interval_to_the_margin():
    """The half-width ± 3 around 3 has to become ± 2 to clear a margin of 1, so 9/4 as many trainings are needed."""
    assert verdict._needed(Interval(3.0, 0.0, 6.0), 1.0, 20) == 20 * 9 // 4 + 1
    assert verdict._needed(Interval(-3.0, -6.0, 0.0), 1.0, 20) == 20 * 9 // 4 + 1
    assert verdict._needed(Interval(0.0, -2.0, 2.0), 1.0, 20) == 81  # towards "no"
    assert verdict._needed(Interval(5.0, 4.9, 5.1), 1.0, 20) == 21  # clear of the margin, p is not low enough
    assert verdict._needed(Interval(1.0, 0.0, 2.0), 1.0, 20) == -1  # on the margin
    assert verdict._needed(Interval(0.0, -math.inf, math.inf), 1.0, 20) == -1
    assert verdict._needed(Interval(1.001, 0.0, 2.0), 1.0, 20) == -1  # twenty million
    found = Verdict("cannot tell", 0.2, 0.01, 1.0, Extremes(1, Interval(3.0, 0.0, 6.0)), 1234)
    assert sentence(found, "x").endswith("; x; about 1,234 trainings would decide.")
    assert sentence(found._replace(needed=-1), "x").endswith("; x; no number of trainings can be named.")


PRINTED = re.compile(
    r"(Yes,|No,|Cannot tell).* (-?[\d.]+) points \(95 % interval (-?[\d.]+) to (-?[\d.]+)\), "
    r"permutation test p = ([\d.e-]+) \(level ([\d.e-]+)\)"
)


def check_sentence(v, margin):
    """A sentence starts with its answer and shows the numbers that it follows from."""
    words = sentence(v, "some orders, some trainings")
    assert words.startswith({"yes": "Yes,", "no": "No,", "cannot tell": "Cannot tell"}[v.answer])
    assert "nan" not in words
    assert words.endswith(".")
    if v.extremes is None:
        assert v.answer == "cannot tell"
        return
    d = v.extremes.difference
    assert f"p = {v.p:.2g} " in words
    if math.isinf(d.high):
        assert v.answer == "cannot tell"
        assert f"{d.estimate:.2f} points (no interval)," in words
        return
    assert f"interval {d.low:.2f} to {d.high:.2f})" in words
    low, high, p, level = map(float, PRINTED.match(words).groups()[2:])
    if v.answer == "yes":
        assert low > margin  # as printed
        assert p < level
    elif v.answer == "no":
        assert -margin < low <= high < margin


@pytest.mark.usefixtures("quick")
def test_answers_follow_from_what_is_printed_whatever_the_scores():
    rng = np.random.default_rng(11)
    answers = []
    for i in range(400):
        units = int(rng.choice([2, 3, 6, 12, 20, 40]))
        draw = TAILS[list(TAILS)[i % len(TAILS)]]
        most = int(rng.integers(1, 13))
        spread = rng.choice([0.0, 0.0, 0.5, 3.0])
        groups = {
            u: (spread * rng.normal() + draw(rng, int(rng.integers(1, most + 1)) if i % 2 else most)).tolist()
            for u in range(units)
        }
        margin = float(np.round(rng.choice([0.1, 0.5, 1.0, 5.0, rng.uniform(0.1, 5)]), 2))
        looks = int(rng.integers(1, 4))
        v = judge(groups, margin=margin, looks=looks, seed=i)
        assert 0.9 * ALPHA / looks < v.alpha <= ALPHA / looks
        assert 0 < v.p <= 1
        assert (v.needed == 0) == (v.answer != "cannot tell")
        if v.extremes is not None:
            d = v.extremes.difference
            assert not any(map(math.isnan, d))
            assert d.low <= d.high
            yes, no = v.p < v.alpha and d.low > margin, -margin < d.low and d.high < margin
            assert v.answer == ("yes" if yes else "no" if no else "cannot tell")
        check_sentence(v, margin)
        answers.append(v.answer)
    assert min(answers.count(answer) for answer in ("yes", "no", "cannot tell")) >= 15


@pytest.mark.parametrize(
    ("above", "margin"), [(1.003, 1.0), (0.9963, 1.0), (0.1004, 0.1), (-0.9963, 1.0), (2.0, 1.996)]
)
def test_what_is_printed_decides_close_to_the_margin(above, margin):
    """An interval that would be printed as reaching the margin decides nothing."""
    check_sentence(judge({0: [above] * 6, 1: [0.0] * 6}, margin=margin), margin)


def test_a_p_value_printed_as_the_level_decides_nothing(monkeypatch):
    monkeypatch.setattr(verdict, "rank_test", lambda groups, seed: 200 / 20_001)
    check_sentence(judge({0: [5.0] * 6, 1: [0.0] * 6}, margin=1.0), 1.0)


@pytest.mark.usefixtures("quick")
def test_equal_orders_are_hardly_ever_said_to_matter():
    rng = np.random.default_rng(12)
    found = [judge(dict(enumerate(rng.standard_t(2, size=(6, 8)))), margin=0.1, seed=i).answer for i in range(200)]
    assert found.count("yes") <= 2
