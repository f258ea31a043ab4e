"""How many threads: measured at the start, never left to chance.

More threads than free cores make every parallel loop wait for the slowest; two torch threads on a loaded two-core
machine were seen to run fifty times slower than one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numba
import numpy as np
import torch

from cavalcade.jit import all_threads
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.fused.blas import single_threaded_blas
from cavalcade.ppo.fused.gradient import METRICS, NONE, Batch, Coefficients, gradients
from cavalcade.ppo.fused.network import Inputs, layout_of

_WORTH_IT = 1.1  # a doubling of threads must give this much to be taken
_ROWS, _ROUNDS = 2048, 5


def use_threads(count: int) -> None:
    """Sets the threads of compiled kernels; torch gets one, since it does no heavy work beside them."""
    numba.set_num_threads(min(count, all_threads()))
    torch.set_num_threads(1)


def use_torch_threads(count: int) -> None:
    """The same where torch does the heavy work."""
    use_threads(count)
    torch.set_num_threads(count)


@contextmanager
def few_threads() -> Iterator[None]:
    """One thread of each kind within the block: other processes need the cores."""
    compiled, plain = numba.get_num_threads(), torch.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(compiled)
        torch.set_num_threads(plain)


def choose_threads() -> int:
    """The number of threads beyond which the learner's main loop gets no faster."""
    return fastest(_gradient_task(), numba.set_num_threads, all_threads())


def choose_torch_threads() -> int:
    """The same for plain torch."""
    x, w = torch.randn(_ROWS, 64), torch.randn(64, 256, requires_grad=True)
    return fastest(lambda: torch.autograd.grad((x @ w).tanh().sum(), w), torch.set_num_threads, all_threads())


class Watch:
    """Sees to it that threads help: when a neighbour takes a core, two threads can be ten times slower than one.

    Told the seconds of each round of equal work. Rounds that take much longer than they did make it try one thread, and
    keep it if that is faster; from time to time it tries all again. Results do not depend on threads.
    """

    _SLOW, _ROUNDS, _PATIENCE = 2.5, 3, 5.0  # times slower, rounds in a row, seconds until all are tried again

    def __init__(self, set_threads: Callable[[int], None] = numba.set_num_threads):
        self._set, self._most = set_threads, numba.get_num_threads()
        self.threads = self._most
        self._best, self._slow, self._kept, self._limit = float("inf"), 0, 0.0, float("inf")

    def lap(self, seconds: float) -> None:
        """A round took so long."""
        if self._most == 1:
            return
        if self.threads == self._most:
            self._best = min(self._best, seconds)
            self._slow = self._slow + 1 if seconds > min(self._SLOW * self._best, self._limit) else 0
            if self._slow >= self._ROUNDS:
                self._change(1, limit=seconds)
            elif not self._slow:
                self._limit = float("inf")
            return
        self._kept += seconds
        if seconds > self._limit:  # the work itself has become slower: one thread is no better
            self._best = self._limit
            self._change(self._most, limit=float("inf"))
        elif self._kept > self._PATIENCE:
            self._change(self._most, limit=seconds)

    def _change(self, threads: int, limit: float) -> None:
        """Goes on with so many threads; what took longer than the limit was better before."""
        self._set(threads)
        self.threads, self._slow, self._kept, self._limit = threads, 0, 0.0, limit


def fastest(task: Callable[[], object], set_threads: Callable[[int], None], most: int) -> int:
    """Doubles the threads as long as a task gets clearly faster."""
    best, chosen, count = float("inf"), 1, 1
    while count <= most:
        set_threads(count)
        task()
        seconds = float("inf")
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            task()
            seconds = min(seconds, time.perf_counter() - start)
        if seconds * _WORTH_IT > best:
            break
        best, chosen = seconds, count
        count = most if count < most < 2 * count else 2 * count
    set_threads(chosen)
    return chosen


def _gradient_task() -> Callable[[], object]:
    """A gradient of a policy of ordinary size over a batch of ordinary size."""
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
