"""The bound of a machine: floating-point operations per step of an engine, against the rate of matrix products."""

import time

import numba
import numpy as np

from cavalcade.core.jit import kernel
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.engines.cpu.blas import single_threaded_blas


@kernel(parallel=True, numerics=True)
def _products(a, b, out, rounds):
    for i in numba.prange(out.shape[0]):
        _product(a, b, out[i], rounds)


@kernel(numerics=True)
def _product(a, b, out, rounds):
    for _ in range(rounds):
        np.dot(a, b, out)


def product_rate(threads: int) -> float:
    """Floating-point operations per second of small matrix products on so many threads; best of several rounds."""
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


def verdict(engine: Engine, rate: float, share: float, threads: int) -> str:
    """The bottleneck of a measured training in words, and the distance to the bound by matrix products.

    Args:
        engine: That was trained, with the times of its phases.
        rate: Environment steps per second.
        share: Of samples for which networks are computed.
        threads: That it was trained with.
    """
    operations, ceiling = engine.operations(share), product_rate(threads)
    bound = ceiling / operations
    name, part = next(iter(engine.timer.shares().items()))
    return (
        f"  bottleneck: {name} ({part:.0%} of the time)\n"
        f"  matrix products: {operations:,.0f} operations per step ({share:.1%} of samples computed), "
        f"machine {ceiling / 1e9:.0f} GFLOP/s on {threads} threads: bound {bound:,.0f} steps/s, "
        f"reached {rate / bound:.0%}"
    )
