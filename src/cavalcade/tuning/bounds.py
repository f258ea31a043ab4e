"""What a machine could do at best: operations per step of a learner, against the rate of its matrix products."""

import time

import numba
import numpy as np

from cavalcade.jit import kernel
from cavalcade.policy.mlp import NETS, MlpSpec
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.ppo.bptt.learner import BpttLearner
from cavalcade.ppo.fused.blas import single_threaded_blas
from cavalcade.ppo.learner import Learner


@kernel(parallel=True, numerics=True)
def _products(a, b, out, rounds):
    for i in numba.prange(out.shape[0]):
        _product(a, b, out[i], rounds)


@kernel(numerics=True)
def _product(a, b, out, rounds):
    for _ in range(rounds):
        np.dot(a, b, out)


def product_rate(threads: int) -> float:
    """Floating-point operations per second of small matrix products on so many threads; best of several."""
    single_threaded_blas()
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((96, 64), (64, 64)))
    out, rounds, best = np.zeros((threads, 96, 64), np.float32), 2000, 0.0
    _products(a, b, out, 1)
    for _ in range(5):
        start = time.perf_counter()
        _products(a, b, out, rounds)
        best = max(best, threads * rounds * 2 * 96 * 64 * 64 / (time.perf_counter() - start))
    return best


def forward_operations(spec: MlpSpec) -> int:
    """Floating-point operations of one forward pass of actor and critic."""
    return sum(2 * layer.fan_in * layer.fan_out for net in NETS for layer in spec.layers(net))


def gradient_operations(spec: MlpSpec) -> int:
    """Of a forward and a backward pass; no gradient is taken of the inputs."""
    inner = sum(2 * layer.fan_in * layer.fan_out for net in NETS for layer in spec.layers(net)[1:])
    return 2 * forward_operations(spec) + inner


def recurrent_operations(policy: TokenPolicy) -> int:
    """Of one forward pass over one observation: products with matrices; sums of embeddings are not counted."""
    tables = ("table", "embedding", "query")
    named = policy.named_parameters()
    return sum(2 * p.numel() for name, p in named if p.dim() == 2 and not any(word in name for word in tables))


def verdict(learner: Learner | BpttLearner, rate: float, rows: float, threads: int) -> str:
    """The bottleneck of a measured training in words, and the distance to the bound by matrix products.

    rate: steps per second; rows: share of samples for which networks are computed.
    """
    if isinstance(learner, BpttLearner):
        operations = (1 + 3 * learner.config.ppo.epochs) * recurrent_operations(learner.policy)
    else:
        spec, epochs = learner.spec, learner.config.epochs
        operations = rows * (forward_operations(spec) + epochs * gradient_operations(spec))
    ceiling = product_rate(threads)
    bound = ceiling / operations
    name, share = next(iter(learner.timer.shares().items()))
    return (
        f"  bottleneck: {name} ({share:.0%} of the time)\n"
        f"  matrix products: {operations:,.0f} operations per step ({rows:.1%} of samples computed), "
        f"machine {ceiling / 1e9:.0f} GFLOP/s on {threads} threads: bound {bound:,.0f} steps/s, "
        f"reached {rate / bound:.0%}"
    )
