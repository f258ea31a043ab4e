"""Searchers: what they ask for next."""

import math

import numpy as np
import pytest

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search.searchers import (
    SEARCHERS,
    GpSearcher,
    HalvingSearcher,
    Observation,
    Proposal,
    beta_at,
    latest,
    make_searcher,
    random_sequence,
)
from cavalcade.workflow.orders import kendall

ORDERS = CAGE2.orders()


def test_the_first_orders_are_far_apart():
    searcher, pending = GpSearcher(ORDERS), []
    for i in range(4):
        pending.append(searcher.propose([], pending, i))
    apart = [kendall(ORDERS[a.order], ORDERS[b.order]) for a in pending for b in pending if a is not b]
    assert min(apart) >= 3
    assert len({p.order for p in pending}) == 4
    assert math.isnan(pending[0].mean)


def test_ucb_goes_where_it_is_good_and_unknown():
    best = ORDERS[50]
    observed = [
        Observation(i, -float(kendall(ORDERS[i], best)), 0.01) for i in np.random.default_rng(0).permutation(120)[:40]
    ]
    proposal = GpSearcher(ORDERS).propose(observed, [], 40)
    assert kendall(ORDERS[proposal.order], best) <= 3
    assert proposal.bound == pytest.approx(proposal.mean + 2 * proposal.deviation)
    eager = GpSearcher(ORDERS, beta=50.0).propose(observed, [], 40)
    assert eager.deviation >= proposal.deviation


def test_pending_orders_are_not_asked_for_again_and_excluded_ones_never():
    observed = [Observation(i, -1.0 * i, 0.1) for i in range(5)]
    searcher = GpSearcher(ORDERS, excluded=frozenset(range(60)))
    asked = []
    for i in range(6):
        asked.append(searcher.propose(observed, asked, i))
    assert len({p.order for p in asked}) == 6
    assert all(p.order >= 60 for p in asked)
    assert GpSearcher(ORDERS, excluded=frozenset(range(120))).propose(observed, [], 0) is None


def test_pending_orders_are_believed_to_be_as_good_as_before_and_better_known():
    observed = [Observation(i, float(s), 0.1) for i, s in enumerate(np.random.default_rng(0).standard_normal(8))]
    searcher, pending = GpSearcher(ORDERS), [Proposal(i) for i in range(50, 57)]
    alone, beside = searcher.believe(observed, ()), searcher.believe(observed, pending)
    np.testing.assert_array_equal(beside.mean, alone.mean)
    assert (beside.noise, beside.amplitude, beside.length) == (alone.noise, alone.amplitude, alone.length)
    assert (beside.deviation <= alone.deviation).all()
    assert beside.deviation[50] < 0.9 * alone.deviation[50]


@pytest.mark.parametrize("name", ["gp-ucb", "thompson", "random", "halving", "exhaustive"])
def test_searchers_are_functions_of_what_is_known(name):
    observed = [Observation(3, -5.0, 0.1), Observation(70, -2.0, 0.1)]
    pending = [Proposal(9)]
    one, again = (make_searcher(name, ORDERS, seed=4).propose(observed, pending, 3) for _ in range(2))
    assert one.order == again.order


def test_thompson_draws():
    observed = [Observation(3, -5.0, 0.1), Observation(70, -2.0, 0.1)]
    found = {make_searcher("thompson", ORDERS, seed=s).propose(observed, [], 2).order for s in range(8)}
    assert len(found) > 3


def test_exhaustive_random_and_fixed_go_through_their_lists():
    exhaustive = make_searcher("exhaustive", ORDERS, rounds=2)
    assert [exhaustive.propose([], [], i).order for i in (0, 119, 120, 239)] == [0, 119, 0, 119]
    assert exhaustive.propose([], [], 240) is None
    random = make_searcher("random", ORDERS, seed=1)
    assert sorted(random.propose([], [], i).order for i in range(120)) == list(range(120))
    fixed = make_searcher("fixed", ORDERS, given=[ORDERS[7], ORDERS[3]])
    assert [fixed.propose([], [], i).order for i in (0, 1)] == [7, 3]
    assert fixed.propose([], [], 2) is None
    with pytest.raises(ConfigError, match="name one or more orders"):
        make_searcher("fixed", ORDERS)
    with pytest.raises(ConfigError, match="searcher is 'psychic'"):
        make_searcher("psychic", ORDERS)
    assert len(SEARCHERS) == 6


def test_halving_promotes_the_best_third_with_three_times_the_budget():
    searcher = HalvingSearcher(120, seed=0)
    began = random_sequence(120, 0)
    observed = [Observation(began[i], float(i), 0.1) for i in range(6)]
    assert searcher.propose(observed, [], 6) == Proposal(began[5], rung=1)
    assert searcher.propose(observed, [Proposal(began[5], rung=1)], 7) == Proposal(began[4], rung=1)
    both = [Proposal(began[5], rung=1), Proposal(began[4], rung=1)]
    assert searcher.propose(observed, both, 8) == Proposal(began[6])
    upper = [*observed, *(Observation(began[i], float(i), 0.1, rung=1) for i in (3, 4, 5))]
    assert searcher.propose(upper, [], 9) == Proposal(began[5], rung=2)


def test_the_schedule_of_beta_grows_slowly():
    assert beta_at(1, 120) == pytest.approx(math.sqrt(2 * math.log(120 * math.pi**2 / 0.6)))
    assert beta_at(1, 120) < beta_at(10, 120) < beta_at(100, 120) < 7


def test_a_resumed_order_counts_with_its_latest_score():
    observed = [Observation(1, -9.0, 0.1), Observation(2, -5.0, 0.1), Observation(1, -3.0, 0.1)]
    assert latest(observed) == [Observation(1, -3.0, 0.1), Observation(2, -5.0, 0.1)]
    resumed = GpSearcher(ORDERS, resumed=True).believe(observed, ())
    fresh = GpSearcher(ORDERS).believe(observed, ())
    assert resumed.mean[1] > fresh.mean[1]
