"""The Gaussian process: closed forms, limits, coverage, synthetic objectives."""

import numpy as np
import pytest
import torch

from cavalcade.bench.gp import heuristic_choice, simple_regrets, synthetic
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search import gp
from cavalcade.search.gp import MallowsKernel, posterior
from cavalcade.workflow.orders import kendall, precedences

ORDERS = CAGE2.orders()
SIGNS = precedences(ORDERS)
DISTANCE = (10 - SIGNS @ SIGNS.T) / 2


def test_the_kernel_is_that_of_mallows():
    kernel = MallowsKernel()
    kernel.lengthscale = 3.0
    x = torch.from_numpy(SIGNS[:20])
    found = kernel(x.double(), x.double()).to_dense().detach().numpy()
    expected = [[np.exp(-kendall(a, b) / 3.0) for b in ORDERS[:20]] for a in ORDERS[:20]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.linalg.eigvalsh(np.exp(-DISTANCE / 3.0)).min() > 0


def test_the_posterior_is_the_closed_form(monkeypatch):
    """With one point in the grid of hyper-parameters, against the textbook formula."""
    monkeypatch.setattr(gp, "_LENGTHS", (4.0,))
    monkeypatch.setattr(gp, "_AMPLITUDES", (1.5,))
    monkeypatch.setattr(gp, "_NOISES", (0.2,))
    rng = np.random.default_rng(0)
    observed = rng.integers(120, size=15)
    y, v = rng.standard_normal(15), rng.random(15) * 0.3
    found = posterior(ORDERS, observed, y, v)
    spread, centre = y.std(ddof=1), y.mean()
    k = (1.5**2 * np.exp(-DISTANCE / 4.0) + 10.0**2) * spread**2
    inverse = np.linalg.inv(k[np.ix_(observed, observed)] + np.diag(v + 0.2**2 * spread**2))
    cross = k[:, observed]
    mean = centre + cross @ inverse @ (y - centre)
    covariance = k - cross @ inverse @ cross.T
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    np.testing.assert_allclose(found.deviation, np.sqrt(np.diag(covariance)), atol=1e-4)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-4)
    assert (found.length, found.amplitude, found.noise) == pytest.approx((4.0, 1.5 * spread, 0.2 * spread))


@pytest.mark.parametrize("kernel", ["mallows", "precedences"])
def test_it_learns_what_orders_are_worth(kernel):
    rng = np.random.default_rng(1)
    truth = SIGNS @ rng.standard_normal(10)
    observed = rng.permutation(120)[:60]
    y = truth[observed] + 0.3 * rng.standard_normal(60)
    found = posterior(ORDERS, observed, y, np.full(60, 0.09), kernel=kernel)
    rest = np.setdiff1d(np.arange(120), observed)
    assert np.corrcoef(found.mean[rest], truth[rest])[0, 1] > 0.9
    assert (np.abs(found.mean - truth) < 2 * found.deviation).mean() > 0.85


def test_noise_between_trainings_is_learnt_from_repeats():
    rng = np.random.default_rng(2)
    observed = np.repeat(np.arange(0, 120, 6), 3)
    y = 2.0 * rng.standard_normal(60)  # the order means nothing
    found = posterior(ORDERS, observed, y, np.full(60, 0.01))
    assert 1.0 < found.noise < 3.0
    assert np.abs(found.mean - y.mean()).max() < 1.5


def test_no_observations_and_one():
    nothing = posterior(ORDERS, [], [], [])
    assert nothing.deviation.min() > 1
    one = posterior(ORDERS, [7], [-20.0], [1.0])
    assert one.mean[7] == pytest.approx(-20, abs=0.5)
    assert one.deviation[7] < one.deviation[119]
    assert np.isfinite(posterior(ORDERS, [3, 3], [-20.0, -20.0], [0.0, 0.0]).mean).all()


def test_draws_differ_by_seed_and_spread_like_the_posterior():
    rng = np.random.default_rng(3)
    observed = rng.permutation(120)[:10]
    y = rng.standard_normal(10)
    draws = np.array([posterior(ORDERS, observed, y, np.full(10, 0.1), seed=s).draw for s in range(200)])
    found = posterior(ORDERS, observed, y, np.full(10, 0.1))
    np.testing.assert_allclose(draws.std(axis=0), found.deviation, rtol=0.35)
    np.testing.assert_allclose(draws.mean(axis=0), found.mean, atol=0.5 * found.deviation.max())


def test_the_heuristic_of_the_scripts_begins_as_they_did():
    """Its first two picks are D,E,S,H,U and the reverse."""
    first = heuristic_choice([], [])
    assert ORDERS[first] == (0, 1, 2, 3, 4)
    assert ORDERS[heuristic_choice([first], [-20.0])] == (4, 3, 2, 1, 0)


def test_it_beats_random_search_and_the_heuristic():
    """A small part of `cavalcade bench gp`: pairwise objectives, noise 1, paired."""
    regrets = {name: [] for name in ("gp-ucb", "random", "heuristic")}
    for i in range(12):
        truth = synthetic("pairwise", i)
        for name in regrets:
            regrets[name].append(simple_regrets(name, truth, 1.0, seed=i, checkpoints=(20, 40)))
    mean = {name: np.mean(values, axis=0) for name, values in regrets.items()}
    assert mean["gp-ucb"][0] < min(mean["random"][0], mean["heuristic"][0])
    assert mean["gp-ucb"][1] < 0.7 * min(mean["random"][1], mean["heuristic"][1])
