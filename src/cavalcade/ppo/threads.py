"""Measures at the start how many threads pay off."""

from collections.abc import Callable

import numba
import numpy as np
import torch

from cavalcade.core.jit import all_threads
from cavalcade.core.threads import fastest
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engines.cpu.blas import single_threaded_blas
from cavalcade.ppo.engines.cpu.gradient import NONE, Batch, gradients
from cavalcade.ppo.engines.cpu.network import Inputs, layout_of
from cavalcade.ppo.objective import METRICS, Coefficients

_ROWS = 2048


def choose_threads() -> int:
    """Sets and returns the number of threads beyond which the cpu engine's gradient gets no faster."""
    return fastest(_gradient_task(), numba.set_num_threads, all_threads())


def choose_torch_threads() -> int:
    """As `choose_threads`, for plain torch."""
    x, w = torch.randn(_ROWS, 64), torch.randn(64, 256, requires_grad=True)
    return fastest(lambda: torch.autograd.grad((x @ w).tanh().sum(), w), torch.set_num_threads, all_threads())


def _gradient_task() -> Callable[[], object]:
    """A gradient of a policy and a batch of typical sizes."""
    single_threaded_blas()
    real, spec = np.float32, MlpSpec(52, 145)
    net, flat = layout_of(spec), (1, _ROWS)
    ids, none = np.arange(_ROWS, dtype=np.int32)[None], np.full(flat, NONE, np.int32)
    one, zero = np.ones(flat, real), np.zeros(flat, real)
    batch = Batch(
        x=np.random.default_rng(0).integers(2, size=(*flat, 52), dtype=np.uint8), rows=ids,
        num_rows=np.array([_ROWS]), row_n=one, row_return=one, row_square=one, row_value=zero, first_pair=ids,
        next_pair=none, pair_mask=ids, pair_n=one, first_group=ids, next_group=none, action=ids % 145, group_n=one,
        plus=one, minus=zero, log_prob=-5 * one, masks=np.ones((*flat, 145), np.bool_),
    )  # fmt: skip
    coefficients = Coefficients(*(np.full(1, x, real) for x in (0.2, 0.5, 0.01, 0)))
    inputs = Inputs(np.zeros((1, 0), real), np.zeros((1, 52), real), np.ones((1, 52), real))
    weights = spec.initial_weights([0]).numpy()
    work, scratch = np.zeros((all_threads(), net.work), real), np.zeros((all_threads(), 3, net.padded), real)
    parts, metrics = np.zeros((1, 8, spec.size), real), np.zeros((1, 8, len(METRICS)))
    samples, active, gradient = np.array([_ROWS]), np.ones(1, np.bool_), np.zeros((1, spec.size), real)
    return lambda: gradients(
        net, batch, coefficients, samples, weights, inputs, active, work, scratch, parts, metrics, gradient
    )
