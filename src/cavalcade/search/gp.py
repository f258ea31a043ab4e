"""A Gaussian process over orders: exact posterior of the score of every order, given noisy scores of some.

Kernel: amplitude² exp(−d / ℓ) with d the Kendall distance (the Mallows kernel), or with a weight for each pairwise
precedence instead of one length scale (`precedences`). The mean is an unknown constant with a wide prior, integrated
out. The noise of an observation is the known variance of its evaluation plus an unknown variance between trainings of
one order. With the Mallows kernel the unknown hyper-parameters are integrated over a grid, in one batch of Cholesky
factorisations: nothing is fitted, so no optimiser can get stuck. With a weight per precedence they are fitted by
BoTorch.

Pending orders reduce the covariance as if they were observed; mean and hyper-parameters depend on scores alone
(GP-BUCB, Desautels et al. 2014).
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.workflow.orders import Order, precedences

# Grid of hyper-parameters; amplitudes and noises in units of the spread of the observed scores.
_LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_AMPLITUDES = (0.15, 0.4, 0.8, 1.6, 3.2)
_NOISES = (0.02, 0.1, 0.3, 0.6, 1.0)
_UNOBSERVED = (4.0, 1.0, 0.3)  # length, amplitude and noise before the first score
_MASS = 0.98  # share of the grid's weight that is kept
_WIDE = 10.0  # standard deviation of the prior of the mean
_JITTER = 1e-8


class Posterior(NamedTuple):
    """Posterior over the scores of orders, (n,) each."""

    mean: NDArray
    deviation: NDArray  # standard deviation
    covariance: NDArray  # (n, n)
    draw: NDArray  # one joint draw from the posterior, for Thompson sampling
    length: float  # expected hyper-parameters, in units of pairs and of scores
    amplitude: float
    noise: float  # standard deviation between trainings of one order


def posterior(
    orders: Sequence[Order],
    observed: Sequence[int],
    scores: Sequence[float],
    variances: Sequence[float],
    *,
    pending: Sequence[int] = (),
    kernel: str = "mallows",
    seed: int = 0,
) -> Posterior:
    """The posterior over all orders.

    Args:
        orders: all n orders.
        observed: indices into orders, one per score, repeats allowed.
        scores: scores of the trainings.
        variances: variances of the evaluations, i.e. squared standard errors.
        pending: indices of orders in training; the covariance is conditioned on their inputs too.
        kernel: `mallows` or `precedences`.
        seed: seed of the draw.
    """
    x = torch.from_numpy(precedences(orders))
    y, v = torch.tensor(scores, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)
    centre = float(y.mean()) if len(y) else 0.0
    spread = float(y.std()) if len(y) > 1 else 0.0
    spread = spread or float(v.mean().sqrt() if len(v) else 0.0) or 1.0
    y, v = (y - centre) / spread, v / spread**2
    find = _integrated if kernel == "mallows" or len(y) < 2 else _fitted
    seen, awaited = (torch.tensor(list(which), dtype=torch.int64) for which in (observed, pending))
    mean, covariance, length, amplitude, noise = find(x, seen, y, v, awaited)
    root = _root(covariance)
    standard = np.random.Generator(np.random.Philox(key=seed)).standard_normal(len(orders))
    return Posterior(
        mean=centre + spread * mean.numpy(),
        deviation=spread * covariance.diagonal().clamp(min=0).sqrt().numpy(),
        covariance=spread**2 * covariance.numpy(),
        draw=centre + spread * (mean + root @ torch.from_numpy(standard)).numpy(),
        length=length,
        amplitude=spread * amplitude,
        noise=spread * noise,
    )


_Found = tuple[Tensor, Tensor, float, float, float]


def _integrated(x: Tensor, observed: Tensor, y: Tensor, v: Tensor, pending: Tensor) -> _Found:
    """Mean, covariance and expected hyper-parameters, integrated over the grid.

    With weights w_g ∝ p(y | g) and m_g, C_g the moments at grid point g: m = Σ w_g m_g,
    C = Σ w_g (C_g + (m_g − m)(m_g − m)ᵀ). At g, with z = L⁻¹ y, W = L⁻¹ K_o and L Lᵀ = K_oo + diag(v) + σ_g² I:
    m_g = Wᵀ z, C_g = K − Wᵀ W − Uᵀ U, U (p, n) of the pending orders.
    """
    axes = (_LENGTHS, _AMPLITUDES, _NOISES) if len(y) else ((value,) for value in _UNOBSERVED)
    grid = torch.cartesian_prod(*(torch.tensor(axis, dtype=x.dtype) for axis in axes)).view(-1, 3)
    pairs = x.shape[1]
    distance = (pairs - x @ x.T) / 2  # (n, n), whole numbers
    length, amplitude, noise = grid.unbind(1)
    observed, y, variance, evidence = _pooled(observed, y, v + noise[:, None] ** 2 + _JITTER)
    near = _kernel(distance[observed][:, observed], length, amplitude)
    near.diagonal(dim1=1, dim2=2).add_(variance)
    lower = torch.linalg.cholesky(near)
    z = torch.linalg.solve_triangular(lower, y.unsqueeze(2), upper=False)
    evidence += -0.5 * z.square().sum((1, 2)) - lower.diagonal(dim1=1, dim2=2).log().sum(1)
    weight = torch.softmax(evidence, dim=0)
    likely = weight.argsort(descending=True)
    likely = likely[: 1 + int((weight[likely].cumsum(0) < _MASS).sum())]
    weight = weight[likely] / weight[likely].sum()
    grid, z, lower = grid[likely], z[likely], lower[likely]
    length, amplitude, noise = grid.unbind(1)

    rows = torch.linalg.solve_triangular(lower, _kernel(distance[observed], length, amplitude), upper=False)
    means = (rows.transpose(1, 2) @ z).squeeze(2)
    mean = weight @ means
    expected = (weight @ grid).tolist()
    if len(pending):
        cross = _kernel(distance[pending], length, amplitude) - rows[:, :, pending].transpose(1, 2) @ rows
        known = v.sum() / max(len(v), 1)
        rows = torch.cat([rows, _explained(cross, pending, known + noise**2 + _JITTER)], dim=1)
    share = weight.sqrt()[:, None]
    rows, apart = (share[:, :, None] * rows).flatten(0, 1), share * (means - mean)
    prior = weight @ _kernel(torch.arange(pairs + 1), length, amplitude)  # (pairs + 1,), by distance
    covariance = prior[distance.long()] - rows.T @ rows + apart.T @ apart
    covariance.diagonal().add_(_JITTER)
    return mean, covariance, *expected


def _pooled(observed: Tensor, y: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pools scores of the same order, which is sufficient for the posterior; also returns the rest of the log-evidence.

    variance: s_i of each score, (G, m). Returns the k orders observed, weighted means ȳ = Σ y_i/s_i / p and variances
    1/p with p = Σ 1/s_i, (G, k), and −½ Σ (log s_i + (y_i − ȳ)²/s_i) − ½ Σ log p, (G,), up to a constant.
    """
    which, place = torch.unique(observed, return_inverse=True)
    shape = (len(variance), len(which))
    precision = torch.zeros(shape, dtype=y.dtype).index_add_(1, place, 1 / variance)
    mean = torch.zeros(shape, dtype=y.dtype).index_add_(1, place, y / variance) / precision
    apart = (y - mean[:, place]).square() / variance
    rest = -0.5 * (variance.log() + apart).sum(1) - 0.5 * precision.log().sum(1)
    return which, mean, 1 / precision, rest


def _kernel(distance: Tensor, length: Tensor, amplitude: Tensor) -> Tensor:
    """Covariances amplitude² exp(−d / ℓ) + the variance of the mean, (G, …) for distances (…) and a grid of G."""
    length, amplitude = (value.view(-1, *(1,) * distance.dim()) for value in (length, amplitude))
    return amplitude**2 * torch.exp(-distance / length) + _WIDE**2


def _explained(cross: Tensor, pending: Tensor, noise: Tensor) -> Tensor:
    """U (G, p, n) with Uᵀ U = C_pᵀ (C_pp + σ² I)⁻¹ C_p: the covariance that observing pending orders would remove.

    cross: their covariances with all orders, C_p (G, p, n); noise: σ² (G,).
    """
    within = cross[:, :, pending]
    within.diagonal(dim1=1, dim2=2).add_(noise[:, None])
    return torch.linalg.solve_triangular(torch.linalg.cholesky(within), cross, upper=False)


def _fitted(x: Tensor, observed: Tensor, y: Tensor, v: Tensor, pending: Tensor) -> _Found:
    """The same with a weight per precedence, hyper-parameters fitted by maximum a posteriori."""
    from botorch.fit import fit_gpytorch_mll  # import takes most of a second, and few searches need it
    from botorch.models import SingleTaskGP

    kernel: Any = ScaleKernel(
        RBFKernel(ard_num_dims=x.shape[1], lengthscale_prior=gpytorch.priors.LogNormalPrior(1.5, 1.0)),
        outputscale_prior=gpytorch.priors.LogNormalPrior(0.0, 1.0),
    )
    likelihood: Any = FixedNoiseGaussianLikelihood(v.clamp(min=1e-6), learn_additional_noise=True)
    model: Any = SingleTaskGP(
        x[observed], y.unsqueeze(1), likelihood=likelihood, covar_module=kernel, outcome_transform=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model))
        model.eval()
        with torch.no_grad():
            found = model(x)
            mean, covariance = found.mean, found.covariance_matrix
            lengths, amplitude = kernel.base_kernel.lengthscale, kernel.outputscale.sqrt()
            noise: Tensor = likelihood.second_noise.view(1)
            if len(pending):
                rows = _explained(covariance[None, pending], pending, v.mean() + noise)[0]
                covariance = covariance - rows.T @ rows
            return mean, covariance, float((lengths**2 / 2).mean()), float(amplitude), float(noise.sqrt())


def _root(covariance: Tensor) -> Tensor:
    """A matrix R with R Rᵀ = covariance."""
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * values.clamp(min=0).sqrt()
