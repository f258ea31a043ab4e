"""What a search concludes."""

import numpy as np
import pytest
from scipy import stats

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search.analysis import answer, effects, explain
from cavalcade.search.gp import posterior
from cavalcade.workflow.orders import precedences


def test_the_f_test_is_that_of_scipy():
    rng = np.random.default_rng(0)
    groups = [rng.normal(m, 1.0, size=5).tolist() for m in (0, 0.5, 1.0, 3.0)]
    found = explain(groups)
    assert found.p == pytest.approx(stats.f_oneway(*groups).pvalue)
    assert (found.orders, found.trainings) == (4, 20)
    assert 0 < found.low < found.share < found.high < 1


def test_shares_of_variance_are_found_and_covered():
    rng = np.random.default_rng(1)
    covered, shares = 0, []
    for _ in range(200):
        groups = [rng.normal(m, 1.0, size=4) for m in rng.normal(0, 1.0, size=12)]
        found = explain(groups)
        covered += found.low <= 0.5 <= found.high
        shares.append(found.share)
    assert 180 <= covered <= 199
    assert 0.4 < np.mean(shares) < 0.6


def test_answers_in_words():
    rng = np.random.default_rng(2)
    yes = explain([rng.normal(m, 0.3, size=4) for m in (0, 1, 2)])
    no = explain([rng.normal(0, 1.0, size=40) for _ in range(60)])
    few = explain([[0.0, 1.0], [1.0, 0.0]])
    assert answer(yes).startswith("Yes, the order matters here.")
    assert answer(no).startswith("No, the order does not matter here: a share of 25% would have been found")
    assert answer(few).startswith("Cannot tell whether the order matters: no effect was found")
    assert answer(None).startswith("Cannot tell whether the order matters: it takes at least two trainings")
    assert explain([[1.0], [2.0, 3.0]]) is None


def test_false_alarms_are_as_rare_as_they_should_be():
    rng = np.random.default_rng(3)
    alarms = sum(explain([rng.normal(0, 1, size=3) for _ in range(8)]).p < 0.05 for _ in range(400))
    assert 6 <= alarms <= 36  # expected 20


def test_effects_of_precedences_are_recovered():
    orders = CAGE2.orders()
    signs = precedences(orders)
    weights = np.zeros(10)
    weights[[1, 6]] = 2.0, -1.0
    rng = np.random.default_rng(4)
    observed = rng.permutation(120)[:80]
    y = (signs @ weights)[observed] + 0.2 * rng.standard_normal(80)
    belief = posterior(orders, observed, y, np.full(80, 0.04))
    found = effects(CAGE2, orders, belief.mean, belief.covariance)
    truth = [(signs @ weights)[signs[:, k] > 0].mean() - (signs @ weights)[signs[:, k] < 0].mean() for k in range(10)]
    for effect, expected in zip(found, truth, strict=True):
        assert abs(effect.mean - expected) < 4 * effect.deviation + 0.05
    assert (found[1].a, found[1].b) == ("defender", "op_server")
    assert found[1].mean > 2


def test_the_power_is_the_rate_at_which_effects_are_found():
    rng = np.random.default_rng(5)
    found = [explain([rng.normal(m, 3**0.5, size=4) for m in rng.normal(0, 1, size=10)]) for _ in range(400)]  # 25 %
    rate = np.mean([f.p < 0.05 for f in found])
    assert abs(rate - found[0].power) < 0.08
