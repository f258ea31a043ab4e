"""The posterior with orders in training, and against GPyTorch."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.search import gp
from cavalcade.search.gp import posterior
from cavalcade.workflow.orders import precedences

ORDERS = CAGE2.orders()
SIGNS = precedences(ORDERS)
DISTANCE = (10 - SIGNS @ SIGNS.T) / 2
PENDING = (3, 40, 77)


class MallowsKernel(Kernel):
    """exp(−Kendall distance / length scale) on rows of ±1 precedences."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **_):
        if diag:
            return torch.exp(-(x1 != x2).sum(-1).to(x1.dtype) / self.lengthscale.squeeze(-1))
        return torch.exp(-(x1.shape[-1] - x1 @ x2.transpose(-1, -2)) / 2 / self.lengthscale)


def known(count, seed=0):
    """Indices, scores and variances of some observations."""
    rng = np.random.default_rng(seed)
    return rng.integers(120, size=count), -20 + 5 * rng.standard_normal(count), rng.random(count)


@pytest.mark.parametrize(("kernel", "count"), [("mallows", 1), ("mallows", 12), ("precedences", 12)])
def test_pending_orders_leave_mean_and_hyper_parameters_alone(kernel, count):
    alone, beside = (posterior(ORDERS, *known(count), pending=p, kernel=kernel) for p in ((), PENDING))
    np.testing.assert_array_equal(beside.mean, alone.mean)
    assert beside[4:] == alone[4:]


@pytest.mark.parametrize(
    ("kernel", "count"), [("mallows", 0), ("mallows", 1), ("mallows", 12), ("precedences", 0), ("precedences", 12)]
)
def test_pending_orders_reduce_the_deviation(kernel, count):
    alone, beside = (posterior(ORDERS, *known(count), pending=p, kernel=kernel) for p in ((), PENDING))
    fall = alone.deviation - beside.deviation
    assert fall.min() > -1e-9
    near = DISTANCE[:, PENDING].min(axis=1)
    assert fall[near == 0].min() > 0.05 * alone.deviation.max()
    assert fall[near <= 1].mean() > fall[near >= 3].mean() > 0
    difference = alone.covariance - beside.covariance
    assert np.linalg.eigvalsh(difference).min() > -1e-9 * np.abs(alone.covariance).max()


def test_a_repeated_pending_order_counts_twice():
    once, twice = (posterior(ORDERS, *known(5), pending=p).deviation[9] for p in ([9], [9, 9]))
    assert twice < once


@pytest.mark.parametrize("count", [0, 15])
def test_with_pending_orders_it_is_the_closed_form(monkeypatch, count):
    """One point in the grid: mean given scores, covariance given the inputs of scores and of pending orders."""
    monkeypatch.setattr(gp, "_LENGTHS", (4.0,))
    monkeypatch.setattr(gp, "_AMPLITUDES", (1.0,))
    monkeypatch.setattr(gp, "_NOISES", (0.3,))
    observed, y, v = known(count)
    found = posterior(ORDERS, observed, y, v, pending=PENDING)
    centre, spread = (y.mean(), y.std(ddof=1)) if count else (0.0, 1.0)
    k = spread**2 * (np.exp(-DISTANCE / 4.0) + 10.0**2)

    def weights(inputs, noise):
        return np.linalg.solve(k[np.ix_(inputs, inputs)] + np.diag(noise + 0.3**2 * spread**2), k[inputs]).T

    both = np.array([*observed, *PENDING])
    noises = np.array([*v, *([v.mean() if count else 0.0] * len(PENDING))])
    mean = centre + weights(observed, v) @ (y - centre) if count else np.zeros(120)
    covariance = k - weights(both, noises) @ k[both]
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-6)
    np.testing.assert_allclose(found.deviation, np.sqrt(np.diag(covariance)), atol=1e-6)


def test_the_draw_has_the_covariance_that_pending_orders_leave():
    args = dict(zip(("observed", "scores", "variances"), known(10), strict=True))
    found = posterior(ORDERS, **args, pending=PENDING)
    draws = np.array([posterior(ORDERS, **args, pending=PENDING, seed=s).draw for s in range(200)])
    ratio = ((draws - found.mean) ** 2).mean() / (found.deviation**2).mean()
    assert ratio == pytest.approx(1, abs=0.15)


class Grid(gpytorch.models.ExactGP):
    """One GPyTorch model per point of the grid, as a batch."""

    def __init__(self, x, y, noise, lengths, amplitudes):
        super().__init__(x, y, FixedNoiseGaussianLikelihood(noise))
        self.covar_module = ScaleKernel(MallowsKernel(batch_shape=lengths.shape), batch_shape=lengths.shape)
        self.double()
        self.covar_module.outputscale = amplitudes**2
        self.covar_module.base_kernel.lengthscale = lengths.view(-1, 1, 1)

    def forward(self, x):
        covariance = self.covar_module(x).to_dense() + 10.0**2 + 1e-8 * torch.eye(x.shape[-2], dtype=x.dtype)
        return MultivariateNormal(torch.zeros(x.shape[:-1], dtype=x.dtype), covariance)


def by_gpytorch(observed, scores, variances):
    """Mean, covariance and expected hyper-parameters, integrated over the grid."""
    x, y, v = torch.from_numpy(SIGNS), torch.from_numpy(scores), torch.from_numpy(variances)
    centre, spread = y.mean(), y.std()
    y, v = (y - centre) / spread, v / spread**2
    axes = (torch.tensor(axis, dtype=x.dtype) for axis in (gp._LENGTHS, gp._AMPLITUDES, gp._NOISES))
    grid = torch.cartesian_prod(*axes)
    inputs = x[observed]

    def model(points):
        size, noise = len(points), v + points[:, 2:] ** 2
        return Grid(inputs.expand(size, -1, -1), y.expand(size, -1), noise, points[:, 0], points[:, 1])

    every = model(grid).train()
    every.likelihood.train()
    evidence = every.likelihood(every(*every.train_inputs)).log_prob(every.train_targets)
    weight, likely = torch.softmax(evidence, 0).sort(descending=True)
    kept = 1 + int((weight.cumsum(0) < gp._MASS).sum())
    weight, grid = weight[:kept] / weight[:kept].sum(), grid[likely[:kept]]
    found = model(grid).eval()(x.expand(kept, -1, -1))
    mean = weight @ found.mean
    apart = found.mean - mean
    covariance = torch.einsum("g,gij->ij", weight, found.covariance_matrix) + (weight[:, None] * apart).T @ apart
    length, amplitude, noise = weight @ grid
    return centre + spread * mean, spread**2 * covariance, length, spread * amplitude, spread * noise


@pytest.mark.parametrize("count", [2, 5, 15, 40])
def test_without_pending_orders_it_is_what_gpytorch_finds(count):
    observed, scores, variances = known(count, seed=count)
    with torch.no_grad():
        mean, covariance, *expected = by_gpytorch(observed, scores, variances)
    found = posterior(ORDERS, observed, scores, variances)
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-8)
    np.testing.assert_allclose(found.deviation, covariance.diagonal().sqrt(), atol=1e-8)
    np.testing.assert_allclose(found[4:], expected, atol=1e-8)
