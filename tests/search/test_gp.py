"""The Gaussian process: closed forms, limits, coverage, synthetic objectives."""

import itertools

import numpy as np
import pytest
import torch

from cavalcade.cli.bench.gp import heuristic_choice, simple_regrets, synthetic
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search import gp
from cavalcade.search.gp import posterior
from cavalcade.workflow.orders import kendall, precedences

ORDERS = CAGE2.orders()
SIGNS = precedences(ORDERS)
DISTANCE = (10 - SIGNS @ SIGNS.T) / 2


def test_the_kernel_is_that_of_mallows():
    distance = torch.from_numpy(DISTANCE[:20, :20])
    (found,) = gp._kernel(distance, torch.tensor([3.0]).double(), torch.tensor([2.0]).double()).numpy()
    expected = [[4 * np.exp(-kendall(a, b) / 3.0) + 100 for b in ORDERS[:20]] for a in ORDERS[:20]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert np.linalg.eigvalsh(np.exp(-DISTANCE / 3.0)).min() > 0


def closed_form(observed, y, v):
    """Mean, covariance and expected hyper-parameters by the textbook formulas, point by point of the grid.

    log p(y | g) = −½ yᵀ S⁻¹ y − ½ log |S| with S = K_oo + diag(v) + σ² I. The likeliest points count that have 98 % of
    the weight.
    """
    spread, centre = y.std(ddof=1), y.mean()
    grid = np.array(list(itertools.product(gp._LENGTHS, gp._AMPLITUDES, gp._NOISES))) * [1, spread, spread]
    evidence, means, covariances = [], [], []
    for length, amplitude, noise in grid:
        k = amplitude**2 * np.exp(-DISTANCE / length) + (10 * spread) ** 2
        s = k[np.ix_(observed, observed)] + np.diag(v + noise**2)
        solved = np.linalg.solve(s, np.column_stack([y - centre, k[observed]]))
        evidence.append(-0.5 * ((y - centre) @ solved[:, 0] + np.linalg.slogdet(s)[1]))
        means.append(centre + k[:, observed] @ solved[:, 0])
        covariances.append(k - k[:, observed] @ solved[:, 1:])
    weight = np.exp(np.array(evidence) - max(evidence))
    weight /= weight.sum()
    order = np.argsort(-weight)
    weight[order[1:][np.cumsum(weight[order])[:-1] >= 0.98]] = 0
    weight /= weight.sum()
    mean = weight @ means
    apart = np.array(means) - mean
    covariance = np.tensordot(weight, covariances, 1) + (weight[:, None] * apart).T @ apart
    return mean, covariance, weight @ grid


@pytest.mark.parametrize("points", ["one", "all"])
def test_the_posterior_is_the_closed_form(monkeypatch, points):
    """With one point in the grid of hyper-parameters, and integrated over all of it."""
    if points == "one":
        monkeypatch.setattr(gp, "_LENGTHS", (4.0,))
        monkeypatch.setattr(gp, "_AMPLITUDES", (1.5,))
        monkeypatch.setattr(gp, "_NOISES", (0.2,))
    rng = np.random.default_rng(0)
    observed = rng.integers(120, size=15)
    y, v = 3 * rng.standard_normal(15) - 20, rng.random(15) * 3
    found = posterior(ORDERS, observed, y, v)
    mean, covariance, expected = closed_form(observed, y, v)
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.deviation, np.sqrt(np.diag(covariance)), atol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-6)
    assert (found.length, found.amplitude, found.noise) == pytest.approx(expected)


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


def test_draws_are_from_the_joint_posterior():
    """Whitened by its mean and covariance they are standard normal: sums of n squares are n ± √(2 n)."""
    rng = np.random.default_rng(3)
    observed = rng.permutation(120)[:10]
    y, v, seeds = 3 * rng.standard_normal(10) - 20, np.full(10, 0.9), 200
    found = posterior(ORDERS, observed, y, v)
    draws = np.array([posterior(ORDERS, observed, y, v, seed=s).draw for s in range(seeds)])
    assert (np.abs(draws.mean(0) - found.mean) < 4 * found.deviation / seeds**0.5).all()
    z = np.linalg.solve(np.linalg.cholesky(found.covariance), (draws - found.mean).T)  # (120, seeds)
    assert (z**2).mean() == pytest.approx(1, abs=4 * (2 / z.size) ** 0.5)
    for axis in (0, 1):  # independent of each other, over orders as over seeds
        sums = z.sum(axis) ** 2 / z.shape[axis]
        assert sums.mean() == pytest.approx(1, abs=4 * (2 / len(sums)) ** 0.5)


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
