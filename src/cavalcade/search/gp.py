"""A Gaussian process over orders: exact posterior of the score of every order, given noisy scores of some.

Kernel: amplitude² exp(−d / ℓ) with d the Kendall distance (the Mallows kernel), or with a weight for each pairwise
precedence instead of one length scale (`precedences`). The mean is an unknown constant with a wide prior, integrated
out. The noise of an observation is the known variance of its evaluation plus an unknown one, since two trainings of one
order differ. With the Mallows kernel the unknown hyper-parameters are integrated over a grid, all of it in one batch of
GPyTorch models: nothing is fitted, nothing can get stuck. With weights per precedence they are fitted by BoTorch.
"""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.workflow.orders import Order, precedences

# Grid of hyper-parameters, in units of the spread of the observed scores where they are scores.
_LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_AMPLITUDES = (0.15, 0.4, 0.8, 1.6, 3.2)
_NOISES = (0.02, 0.1, 0.3, 0.6, 1.0)
_MASS = 0.98  # of the grid's weight that is kept
_WIDE = 10.0  # deviation of the prior of the mean


class Posterior(NamedTuple):
    """What is believed about the scores of orders, (n,) each."""

    mean: NDArray
    deviation: NDArray
    covariance: NDArray  # (n, n)
    draw: NDArray  # one joint draw from the posterior, for Thompson sampling
    length: float  # expected hyper-parameters, in units of pairs and of scores
    amplitude: float
    noise: float  # deviation between trainings of one order


class MallowsKernel(Kernel):
    """exp(−Kendall distance / length scale) on rows of ±1 precedences."""

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """Covariances of rows of x1 with rows of x2."""
        if diag:
            distance = (x1 != x2).sum(-1).to(x1.dtype)
            return torch.exp(-distance / self.lengthscale.squeeze(-1))
        distance = (x1.shape[-1] - x1 @ x2.transpose(-1, -2)) / 2
        return torch.exp(-distance / self.lengthscale)


class _Grid(gpytorch.models.ExactGP):
    """One model per point of the grid, as a batch."""

    def __init__(self, x: Tensor, y: Tensor, noise: Tensor, lengths: Tensor, amplitudes: Tensor):
        batch = lengths.shape
        super().__init__(x, y, FixedNoiseGaussianLikelihood(noise))
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
        self.covar_module = ScaleKernel(MallowsKernel(batch_shape=batch), batch_shape=batch)
        self.covar_module.outputscale = amplitudes**2
        self.covar_module.base_kernel.lengthscale = lengths.view(-1, 1, 1)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior: zero mean, since the unknown constant is part of the covariance."""
        covariance = self.covar_module(x).to_dense() + _WIDE**2  # pyright: ignore
        zero: Any = self.mean_module(x)
        return MultivariateNormal(zero, covariance + 1e-8 * torch.eye(x.shape[-2], dtype=x.dtype))


def posterior(
    orders: Sequence[Order],
    observed: Sequence[int],
    scores: Sequence[float],
    variances: Sequence[float],
    *,
    kernel: str = "mallows",
    seed: int = 0,
) -> Posterior:
    """The posterior over all orders; observed: indices into them, one per score, repeats allowed.

    variances: of the evaluations, i.e. squared standard errors.
    """
    x = torch.from_numpy(precedences(orders))
    y, v = torch.tensor(scores, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)
    centre = float(y.mean()) if len(y) else 0.0
    spread = float(y.std()) if len(y) > 1 else 0.0
    spread = spread or float(v.mean().sqrt() if len(v) else 0.0) or 1.0
    y, v = (y - centre) / spread, v / spread**2
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        find = _integrated if kernel == "mallows" else _fitted
        mean, covariance, length, amplitude, noise = find(x, np.asarray(observed, np.int64), y, v)
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


def _integrated(x: Tensor, observed: NDArray, y: Tensor, v: Tensor) -> _Found:
    """Mean, covariance and expected hyper-parameters, integrated over the grid."""
    grid = torch.cartesian_prod(*(torch.tensor(g, dtype=torch.float64) for g in (_LENGTHS, _AMPLITUDES, _NOISES)))
    length, amplitude, noise = grid.unbind(1)
    if not len(y):
        middle = torch.exp(-(x.shape[1] - x @ x.T) / 2 / 4.0) + _WIDE**2
        return torch.zeros(len(x), dtype=x.dtype), middle, 4.0, 1.0, 0.3
    inputs, targets = x[observed].expand(len(grid), -1, -1), y.expand(len(grid), -1)
    variance = (v + noise[:, None] ** 2).clamp(min=1e-6)
    model: Any = _Grid(inputs, targets, variance, length, amplitude)
    model.train()
    weight = torch.softmax(model.likelihood(model(inputs)).log_prob(targets), dim=0)
    likely = weight.argsort(descending=True)
    likely = likely[: 1 + int((weight[likely].cumsum(0) < _MASS).sum())]
    grid, weight = grid[likely], weight[likely] / weight[likely].sum()
    size = len(likely)
    model = _Grid(inputs[:size], targets[:size], variance[likely], length[likely], amplitude[likely])
    model.eval()
    with gpytorch.settings.fast_pred_var(False):
        found = model(x.expand(size, -1, -1))
    means, covariances = found.mean, found.covariance_matrix
    mean = (weight[:, None] * means).sum(0)
    apart = means - mean
    covariance = torch.einsum("g,gij->ij", weight, covariances) + torch.einsum("g,gi,gj->ij", weight, apart, apart)
    expected = (weight[:, None] * grid).sum(0).tolist()
    return mean, covariance, *expected


def _fitted(x: Tensor, observed: NDArray, y: Tensor, v: Tensor) -> _Found:
    """The same with a weight per precedence, hyper-parameters fitted by maximum a posteriori."""
    if len(y) < 2:
        return _integrated(x, observed, y, v)
    kernel: Any = ScaleKernel(
        RBFKernel(ard_num_dims=x.shape[1], lengthscale_prior=gpytorch.priors.LogNormalPrior(1.5, 1.0)),
        outputscale_prior=gpytorch.priors.LogNormalPrior(0.0, 1.0),
    )
    noise: Any = FixedNoiseGaussianLikelihood(v.clamp(min=1e-6), learn_additional_noise=True)
    model: Any = SingleTaskGP(
        x[observed], y.unsqueeze(1), likelihood=noise, covar_module=kernel, outcome_transform=None
    )
    with torch.enable_grad():
        fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
    model.eval()
    found = model(x)
    lengths: Tensor = kernel.base_kernel.lengthscale
    return (
        found.mean,
        found.covariance_matrix,
        float((lengths**2 / 2).mean()),
        float(kernel.outputscale.sqrt()),
        float(noise.second_noise.sqrt()),
    )


def _root(covariance: Tensor) -> Tensor:
    """A matrix whose square is the covariance."""
    values, vectors = torch.linalg.eigh((covariance + covariance.T) / 2)
    return vectors * values.clamp(min=0).sqrt()
