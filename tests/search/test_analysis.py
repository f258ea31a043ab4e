"""What a search concludes: the manipulation check, the answer, the best order, effects of precedences."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from cavalcade.config.workflow import WorkflowConfig
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search import verdict
from cavalcade.search.analysis import (
    believed_effects,
    check,
    comparable,
    explain,
    findings,
    interval_of,
    partial_contrasts,
    pooled,
    top_rung,
    trained_effects,
    verdict_of,
)
from cavalcade.search.config import SearchConfig
from cavalcade.search.gp import posterior
from cavalcade.search.members import CONFIRM, CONTROL, ORDER, PLAIN, SEARCHING, SHUFFLED, Member, Result
from cavalcade.workflow.orders import precedences

ORDERS = CAGE2.orders()
SIGNS = precedences(ORDERS)
PAIRS = [f"{CAGE2.names[a]}/{CAGE2.names[b]}" for a, b in CAGE2.pairs()]
ALL_BIND = [1.0] * 10
LISTED = SearchConfig(searcher="exhaustive")
CHOSEN = SearchConfig(searcher="gp-ucb")


def result(
    order=0, score=0.0, *, purpose=SEARCHING, kind=ORDER, start="", rung=0, compliance=1.0, counted=5.0, bound=ALL_BIND
):
    """A training with what matters here; the rest is of no account."""
    member = Member(0, purpose, kind, order, seed=0, updates=1, start=start, rung=rung)
    return Result(
        member, stop="budget", updates=1, episodes=1.0, steps=100, used=1.0, score=score, error=0.1, heldout=score,
        tail=math.nan, task=score, bonus=0.0, total=score, compliance=compliance, counted=counted,
        true_compliance=compliance, true_counted=counted, choice=1.0, original=1.0, chance=0.5, binding=sum(bound),
        bound=list(bound), training_compliance=1.0, multiplier=math.nan, passed=True, seconds=0.0,
    )  # fmt: skip


def trainings(scores, **given):
    """Trainings with the scores of each order."""
    return [result(order, float(score), **given) for order, mine in scores.items() for score in mine]


def belief_of(scores):
    """A posterior that is as sure as can be: the mean of the scores of an order, −100 without any."""
    mean = np.array([np.mean(scores[i]) if i in scores else -100.0 for i in range(len(ORDERS))])
    return SimpleNamespace(mean=mean, deviation=np.full(120, 0.1), covariance=0.01 * np.eye(120))


def found_by(config, scores, extra=(), **given):
    """The findings of a search with these scores."""
    return findings(config, CAGE2, ORDERS, [*trainings(scores, **given), *extra], belief_of(scores))


def bound_by(*pairs):
    """Decisions per episode by pair, two for each that is named."""
    assert set(pairs) <= set(PAIRS)
    return [2.0 if pair in pairs else 0.0 for pair in PAIRS]


THREE = bound_by("enterprise/op_server", "enterprise/user", "op_server/user")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
def test_shares_of_variance_are_recovered(share):
    rng = np.random.default_rng(1)
    found = []
    for _ in range(200):
        sizes = rng.integers(2, 7, size=15)
        means = rng.normal(0, share**0.5, size=15)
        found.append(explain([rng.normal(m, (1 - share) ** 0.5, size=n) for m, n in zip(means, sizes, strict=True)]))
    assert np.mean([f.between**2 for f in found]) == pytest.approx(share, abs=0.06)
    assert np.mean([f.within**2 for f in found]) == pytest.approx(1 - share, abs=0.03)
    assert np.mean([f.share for f in found]) == pytest.approx(share, abs=0.07)


def test_shares_of_variance_by_hand():
    found = explain([[1.0, 3.0], [7.0, 9.0], [100.0]])
    assert (found.orders, found.trainings) == (2, 4)  # the order with a single training says nothing
    assert found.within == pytest.approx(2**0.5)
    assert found.between == pytest.approx(((36 - 2) / 2) ** 0.5)  # mean square between 36, within 2, two of each
    assert found.share == pytest.approx(17 / 19)
    assert explain([[1.0, 1.0], [1.0, 1.0]]).share == 0
    assert explain([[1.0, 1.0], [2.0, 2.0]]).share == 1
    assert explain([[1.0], [2.0, 3.0]]) is None


def test_effects_are_of_a_precedence_with_the_others_equal():
    """Of scores that depend on one precedence alone, plain differences of means give effects to six others."""
    scores = 1.5 * SIGNS[:, 4]
    np.testing.assert_allclose(partial_contrasts(SIGNS) @ scores, [3.0 * (k == 4) for k in range(10)], atol=1e-9)
    naive = np.array([scores[column > 0].mean() - scores[column < 0].mean() for column in SIGNS.T])
    assert naive[4] == pytest.approx(3.0)
    assert (np.abs(naive) > 0.9).sum() == 7  # pairs that share a subtask with it


def test_trained_effects_find_the_precedence_that_matters():
    rng = np.random.default_rng(2)
    trials = {order: SIGNS[order, 4] + rng.standard_t(3, size=3) for order in range(120)}
    found = trained_effects(SIGNS, trials)
    assert [k for k, effect in enumerate(found) if effect.low > 0 or effect.high < 0] == [4]
    assert found[4].estimate == pytest.approx(2.0, abs=0.5)
    means = np.array([trials[order].mean() for order in range(120)])  # the IQM of three
    assert [effect.estimate for effect in found] == pytest.approx(list(partial_contrasts(SIGNS) @ means))


def test_trained_effects_cover_all_at_once(monkeypatch):
    """The intervals of ten precedences, corrected for their number: each at 95 % would cover all in 6 of 10 tables."""
    monkeypatch.setattr(verdict, "_RESAMPLES", 1000)
    rng, weights = np.random.default_rng(3), np.linspace(-1, 1, 10)
    joint, widths = 0, []
    for _ in range(60):
        trials = {order: SIGNS[order] @ weights + rng.normal(size=2) for order in range(120)}
        found = trained_effects(SIGNS, trials)
        joint += all(effect.low <= 2 * w <= effect.high for effect, w in zip(found, weights, strict=True))
        widths += [effect.high - effect.low for effect in found]
    assert joint >= 57
    exact = 2 * 2.807 * np.linalg.norm(partial_contrasts(SIGNS), axis=1).mean() / 2**0.5  # normal, 0.5 % for each
    assert np.mean(widths) == pytest.approx(exact, rel=0.1)


def test_believed_effects_are_those_of_the_posterior():
    rng = np.random.default_rng(4)
    seen = rng.permutation(120)[:80]
    weights = np.zeros(10)
    weights[[1, 6]] = 2.0, -1.0
    scores = (SIGNS @ weights)[seen] + 0.2 * rng.standard_normal(80)
    belief = posterior(ORDERS, seen, scores, np.full(80, 0.04))
    found = believed_effects(SIGNS, belief)
    assert [k for k, effect in enumerate(found) if effect.low > 0 or effect.high < 0] == [1, 6]
    assert all(effect.low <= 2 * w <= effect.high for effect, w in zip(found, weights, strict=True))
    assert max(effect.high - effect.low for effect in found) < 2
    contrasts = partial_contrasts(SIGNS)
    drawn = rng.multivariate_normal(belief.mean, belief.covariance, size=4000, method="eigh") @ contrasts.T
    assert [(e.high - e.low) / 2 / 2.807 for e in found] == pytest.approx(list(drawn.std(axis=0)), rel=0.06)


def test_effects_come_from_trainings_only_where_every_order_has_two():
    scores = {order: [SIGNS[order, 4] + 0.01, SIGNS[order, 4] - 0.01] for order in range(120)}
    lying = SimpleNamespace(mean=5 * SIGNS[:, 0], deviation=np.ones(120), covariance=1e-6 * np.eye(120))
    trained = findings(LISTED, CAGE2, ORDERS, trainings(scores, bound=bound_by("defender/op_server")), lying)
    assert max(trained.effects, key=lambda e: e.mean)[:2] == ("enterprise", "op_server")
    assert [e.binding for e in trained.effects] == bound_by("defender/op_server")
    del scores[7]
    believed = findings(LISTED, CAGE2, ORDERS, trainings(scores), lying)
    assert max(believed.effects, key=lambda e: e.mean)[:2] == ("defender", "enterprise")


def test_orders_that_were_not_followed_are_left_out_and_listed():
    followed = trainings({order: [0.0, 1.0] for order in range(2, 20)})
    broken = trainings({0: [50.0, 51.0], 1: [52.0, 53.0]}, compliance=0.96)
    found = check(LISTED, ORDERS, [*followed, *broken])
    assert found.unfollowed == [0, 1]
    assert sorted(found.trials) == list(range(2, 20))
    assert not found.failed  # a tenth, not more
    whole = findings(LISTED, CAGE2, ORDERS, [*followed, *broken], belief_of({0: [50.0], 1: [52.0], 2: [0.5]}))
    assert whole.best == 2
    assert {r.order: r.followed for r in whole.ranking} == {order: order > 1 for order in range(20)}
    assert f"(compliance below 0.97), left out: {CAGE2.text(ORDERS[0])}, {CAGE2.text(ORDERS[1])}" in whole.notes[0]


def test_an_order_is_followed_by_all_decisions_of_its_trainings():
    mostly = [result(0, compliance=0.5, counted=1.0), result(0, compliance=1.0, counted=99.0)]
    seldom = [result(1, compliance=0.9, counted=99.0), result(1, compliance=1.0, counted=1.0)]
    assert pooled(mostly) == pytest.approx(0.995)
    assert check(LISTED, ORDERS, [*mostly, *seldom]).unfollowed == [1]
    lower = SearchConfig(searcher="exhaustive", workflow=WorkflowConfig(follow_threshold=0.9))
    assert check(lower, ORDERS, [*mostly, *seldom]).unfollowed == []


def test_without_decisions_an_order_counts_as_followed():
    found = check(LISTED, ORDERS, trainings({0: [0.0, 1.0], 1: [0.0, 1.0]}, compliance=math.nan, counted=0.0))
    assert (sorted(found.trials), found.unfollowed, found.failed) == ([0, 1], [], False)
    mixed = [result(0, compliance=math.nan, counted=0.0), result(0, compliance=0.8, counted=3.0)]
    assert pooled(mixed) == pytest.approx(0.8)
    assert math.isnan(pooled(mixed[:1]))


def test_too_many_orders_not_followed_is_no_answer():
    rng = np.random.default_rng(5)
    followed = {order: rng.normal(5 * order, 1, size=8) for order in range(17)}
    broken = trainings({order: [0.0, 1.0] for order in range(17, 20)}, compliance=0.5)
    found = found_by(LISTED, followed, extra=broken)
    assert found.check.failed
    assert found.verdict is None
    assert found.answer == (
        "Cannot tell whether the order matters: the orders were not followed (3 of 20 have a compliance below 0.97)."
    )
    assert found_by(LISTED, followed, extra=broken[:2]).answer.startswith("Yes, the order matters here")


def test_trainings_that_began_elsewhere_do_not_enter():
    warm = trainings({0: [9.0, 9.0], 1: [9.0]}, start="member-3")
    found = check(LISTED, ORDERS, [*trainings({0: [1.0, 2.0], 2: [3.0, 4.0]}), *warm])
    assert found.trials == {0: [1.0, 2.0], 2: [3.0, 4.0]}


def test_of_halving_only_the_highest_rung_that_compares_enters():
    halving = SearchConfig(searcher="halving")
    low, middle = trainings({0: [1.0], 1: [2.0], 2: [3.0]}), trainings({1: [5.0], 2: [6.0]}, rung=1)
    high = trainings({2: [7.0]}, rung=2)
    assert top_rung([*low, *middle, *high]) == 1
    assert top_rung(high) == 2
    assert top_rung([]) == 0
    assert [r.score for r in comparable(halving, [*low, *middle, *high], (SEARCHING,))] == [5.0, 6.0]
    assert len(comparable(LISTED, [*low, *middle, *high], (SEARCHING,))) == 6
    confirmed = trainings({1: [5.5, 6.5], 2: [6.0, 7.0]}, rung=1, purpose=CONFIRM)
    stray = trainings({1: [-50.0]}, rung=0, purpose=CONFIRM)
    found = check(halving, ORDERS, [*low, *middle, *high, *confirmed, *stray])
    assert (found.trials, found.confirmed) == ({1: [5.5, 6.5], 2: [6.0, 7.0]}, True)


def test_scores_that_chose_the_order_do_not_judge_it():
    """A search that follows scores trains lucky orders again: only its confirmation compares."""
    searched = trainings({0: [9.0, 9.0], 1: [0.0, 0.0], 2: [0.0, 0.0]})
    confirmed = trainings({0: [1.0, 2.0], 1: [1.0, 2.0]}, purpose=CONFIRM)
    found = check(CHOSEN, ORDERS, [*searched, *confirmed])
    assert (found.trials, found.confirmed) == ({0: [1.0, 2.0], 1: [1.0, 2.0]}, True)
    assert check(CHOSEN, ORDERS, searched).trials == {}
    listed = check(LISTED, ORDERS, [*searched, *confirmed])
    assert (sorted(listed.trials), listed.confirmed) == ([0, 1, 2], False)  # more orders with two trainings
    controls = [result(0, 77.0, purpose=CONTROL, kind=kind) for kind in (PLAIN, SHUFFLED)]
    assert check(CHOSEN, ORDERS, [*searched, *confirmed, *controls]).trials == found.trials


def test_only_a_confirmation_is_looked_at_more_than_once():
    scores = {order: [5.0 * order, 5.0 * order + 1] * 4 for order in range(3)}
    several = SearchConfig(searcher="exhaustive", confirm_batches=4)
    assert verdict_of(several, check(several, ORDERS, trainings(scores))).alpha == 0.01
    assert verdict_of(several, check(several, ORDERS, trainings(scores, purpose=CONFIRM))).alpha == 0.0025
    wide = SearchConfig(searcher="exhaustive", margin=2.5)
    assert verdict_of(wide, check(wide, ORDERS, trainings(scores))).margin == 2.5


def test_orders_that_never_bind_differently_are_one_unit():
    """Of five kinds of hosts three ever compete: 120 orders are 6 classes of 20, and scores are pooled by class."""
    scores = {order: [float(order), order + 0.5] for order in range(120)}
    found = check(LISTED, ORDERS, trainings(scores, bound=THREE))
    assert len(found.trials) == 120
    assert len(found.units) == 6
    kinds = ("enterprise", "op_server", "user")
    for unit, pooled_scores in found.units.items():
        alike = [kind for kind in CAGE2.text(ORDERS[unit]).split(">") if kind in kinds]
        mine = [o for o in range(120) if [k for k in CAGE2.text(ORDERS[o]).split(">") if k in kinds] == alike]
        assert unit == mine[0]
        assert sorted(pooled_scores) == sorted(score for order in mine for score in scores[order])
        assert len(pooled_scores) == 40
    assert found.bound.tolist() == THREE


def test_the_answer_says_how_many_classes_bind_differently():
    rng = np.random.default_rng(6)
    prefers = 4 * SIGNS[:, PAIRS.index("enterprise/user")]
    scores = {order: rng.normal(prefers[order], 1, size=2) for order in range(120)}
    found = found_by(LISTED, scores, bound=THREE)
    assert found.answer.startswith("Yes, the order matters here, by more than 1 point: best − worst ")
    assert "120 orders in 6 classes that bind differently, 240 trainings from scratch." in found.answer
    assert found.explained.orders == 6
    assert "defender/enterprise" in found.notes[-1]
    assert "enterprise/user" not in found.notes[-1]
    assert found.notes[-1].endswith("; the 120 orders are 6 classes")
    assert all(low <= 0 <= high for a, b, _, low, high, n in found.effects if not n)  # negative controls


def test_one_binding_decision_anywhere_sets_orders_apart():
    some = trainings({0: [0.0, 1.0], 1: [0.0, 1.0]}, bound=[0.0] * 10)
    once = result(1, 0.5, bound=[0.0] * 9 + [0.01])
    assert len(check(LISTED, ORDERS, some).units) == 1
    found = check(LISTED, ORDERS, [*some, once])
    assert len(found.units) == 2  # orders 0 and 1 differ in the last pair alone
    assert found.bound[9] == pytest.approx(0.01 / 5)


def test_orders_that_are_one_and_the_same_have_no_answer():
    found = found_by(LISTED, {0: [0.0, 1.0], 1: [5.0, 6.0]}, bound=bound_by("defender/enterprise"))
    assert found.verdict is None
    assert found.answer == (
        "Cannot tell whether the order matters: the 2 orders compared never bound a decision differently; they are "
        "one and the same."
    )


def test_where_nothing_binds_the_order_does_not_matter():
    found = found_by(LISTED, {0: [0.0, 1.0], 1: [5.0, 6.0]}, bound=[0.0] * 10, compliance=math.nan, counted=0.0)
    assert found.answer == "No, the order does not matter here: no decision was ever bound by an order."


def test_too_few_trainings_have_no_answer():
    found = found_by(LISTED, {0: [0.0], 1: [5.0]})
    assert found.answer.startswith("Cannot tell whether the order matters: 2 orders, 2 trainings from scratch; it take")
    nothing = found_by(CHOSEN, {0: [0.0], 1: [5.0]})
    assert nothing.answer.startswith("Cannot tell whether the order matters: 0 orders, 0 trainings from scratch; it ")
    assert nothing.best == 1
    assert nothing.headline == f"highest: {CAGE2.name_of(ORDERS[1])}; not compared with anything"
    assert not nothing.winner


def test_one_training_of_each_order_is_enough_where_orders_repeat_each_other():
    """Six classes of twenty orders are six units with twenty trainings each."""
    rng = np.random.default_rng(12)
    prefers = 4 * SIGNS[:, PAIRS.index("enterprise/user")]
    scores = {order: [rng.normal(prefers[order], 1)] for order in range(120)}
    found = found_by(LISTED, scores, bound=THREE)
    assert {len(pooled_scores) for pooled_scores in found.check.units.values()} == {20}
    assert found.answer.startswith("Yes, the order matters here")


def around(score):
    """Eight scores."""
    return score + np.linspace(-0.7, 0.7, 8)[[3, 0, 6, 1, 7, 4, 2, 5]]


def plain_ppo(scores):
    """Controls without an order."""
    return [result(-1, float(score), purpose=CONTROL, kind=PLAIN, bound=[0.0] * 10) for score in scores]


def test_a_winner_is_better_than_plain_ppo_or_the_runner_up():
    name, second = CAGE2.name_of(ORDERS[3]), CAGE2.name_of(ORDERS[5])
    both = found_by(CHOSEN, {3: around(9), 5: around(4)}, plain_ppo(around(0)), purpose=CONFIRM)
    assert (both.best, both.winner) == (3, True)
    assert both.headline.startswith(f"winner: {name}; better than plain PPO (+")
    assert f"; better than the runner-up {second} (+" in both.headline
    one = found_by(CHOSEN, {3: around(9), 5: around(8.9)}, plain_ppo(around(0)), purpose=CONFIRM)
    assert one.winner
    assert "; not distinguishable from the runner-up" in one.headline
    worse = found_by(CHOSEN, {3: around(9), 5: around(4)}, plain_ppo(around(20)), purpose=CONFIRM)
    assert worse.winner
    assert "; worse than plain PPO (-" in worse.headline


def test_no_winner_is_named_that_is_not_better():
    name, second = CAGE2.name_of(ORDERS[3]), CAGE2.name_of(ORDERS[5])
    equal = found_by(CHOSEN, {3: around(5.2), 5: around(5)}, plain_ppo(around(5)), purpose=CONFIRM)
    assert not equal.winner
    assert equal.headline.startswith(
        f"no order is better than plain PPO or the runner-up {second}; the highest, {name}, is not distinguishable "
    )
    worse = found_by(CHOSEN, {3: around(5.2), 5: around(5)}, plain_ppo(around(9)), purpose=CONFIRM)
    assert not worse.winner
    assert f"{name}, is worse than plain PPO (-" in worse.headline
    alone = found_by(CHOSEN, {3: around(5.2), 5: around(5)}, purpose=CONFIRM)
    assert alone.headline.startswith(f"no order is better than the runner-up {second}; the highest")
    broken = found_by(CHOSEN, {3: around(5), 5: around(5)}, purpose=CONFIRM, compliance=0.1)
    assert (broken.best, broken.winner, broken.headline) == (-1, False, "no order was followed")


def test_the_best_of_many_is_compared_at_a_stricter_level(monkeypatch):
    """A difference that two orders show is none when the best was chosen from sixty."""
    scores = {0: [1.0, 2, 3, 4, 5, 6], 1: [-3.0, -2, -1, 0, 1, 2]}
    many = {order: [-90.0 - order] * 6 for order in range(2, 60)}
    assert found_by(LISTED, scores).winner
    assert not found_by(LISTED, scores | many).winner
    monkeypatch.setattr(verdict, "_RESAMPLES", 2000)
    monkeypatch.setattr(verdict, "_PERMUTATIONS", 99)
    rng = np.random.default_rng(9)
    tables = rng.normal(size=(20, 41, 6))  # of equal orders
    winners = [found_by(LISTED, dict(enumerate(table[1:])), plain_ppo(table[0])).winner for table in tables]
    assert sum(winners) <= 2


def test_the_runner_up_binds_differently_than_the_best():
    rng = np.random.default_rng(10)
    scores = {order: rng.normal(10 - order, 0.1, size=6) for order in range(8)}
    found = found_by(LISTED, scores, bound=bound_by("defender/enterprise", "op_server/user"))
    before = SIGNS[:8, PAIRS.index("op_server/user")] > 0  # defender comes first in all of these
    first = int(np.argmin(before))
    assert first > 1
    assert f"the runner-up {CAGE2.name_of(ORDERS[first])}" in found.headline
    assert sorted(found.groups["best order"]) == sorted(s for o, mine in scores.items() for s in mine if before[o])


def test_the_ranking_has_what_is_known_of_each_order():
    searched = trainings({4: [1.0, 3.0], 6: [7.0]}, compliance=0.99, bound=THREE)
    confirmed = trainings({4: [2.0, 3.0, 4.0, 5.0]}, purpose=CONFIRM, bound=THREE)
    found = findings(CHOSEN, CAGE2, ORDERS, [*searched, *confirmed, *plain_ppo([0.0])], belief_of({4: [2.0], 6: [7.0]}))
    assert [r.order for r in found.ranking] == [6, 4]
    six, four = found.ranking
    assert (four.trainings, four.score, four.confirmed) == (2, 2.0, 3.5)
    assert four.low < 3.5 < four.high
    assert four.compliance == pytest.approx((2 * 0.99 + 4) / 6)
    assert (six.trainings, six.score, six.binding) == (1, 7.0, 6.0)
    assert math.isnan(six.confirmed)
    assert found.groups[PLAIN] == [0.0]
    assert found.best == 4  # the only one that was confirmed


def test_the_interval_of_an_order_covers(monkeypatch):
    monkeypatch.setattr(verdict, "_RESAMPLES", 1000)
    rng = np.random.default_rng(11)
    found = [interval_of(rng.normal(3, 2, size=6)) for _ in range(200)]
    assert sum(i.low <= 3 <= i.high for i in found) >= 184
    assert all(map(math.isnan, interval_of([])))
