"""Thread counts of Numba and torch, and a governor that reacts when another process takes a core.

More threads than free cores make every parallel loop wait for the slowest; two torch threads on a loaded two-core
machine were seen to run fifty times slower than one.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numba
import torch

from cavalcade.core.jit import all_threads

_WORTH_IT = 1.1  # least speedup for which the threads are doubled
_ROUNDS = 5


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(count: int) -> None:
    """Sets the threads of compiled kernels; torch gets one, since it does no heavy work there."""
    numba.set_num_threads(min(count, all_threads()))
    torch.set_num_threads(1)


def use_torch_threads(count: int) -> None:
    """Sets the threads of compiled kernels and of torch, where torch does the heavy work."""
    use_threads(count)
    torch.set_num_threads(count)


@contextmanager
def few_threads() -> Iterator[None]:
    """One thread for kernels and one for torch within the block, while other processes need the cores."""
    compiled, plain = numba.get_num_threads(), torch.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(compiled)
        torch.set_num_threads(plain)


class ThreadGovernor:
    """Falls back to one thread while another process takes a core: two threads can then be ten times slower than one.

    `lap` reports the seconds of each round of equal work. After several rounds much slower than the best, it tries one
    thread and keeps it if that is faster; from time to time it tries all again. Results do not depend on threads.
    """

    _SLOW, _ROUNDS, _PATIENCE = 2.5, 3, 5.0  # slowdown, rounds in a row, seconds until all threads are tried again

    def __init__(self, set_threads: Callable[[int], None] = numba.set_num_threads):
        self._set, self._most = set_threads, numba.get_num_threads()
        self.threads = self._most
        self._best, self._slow, self._kept, self._limit = float("inf"), 0, 0.0, float("inf")

    def lap(self, seconds: float) -> None:
        """Reports the seconds of a round and adapts the number of threads."""
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
        if seconds > self._limit:  # the work itself has become slower: one thread does not help
            self._best = self._limit
            self._change(self._most, limit=float("inf"))
        elif self._kept > self._PATIENCE:
            self._change(self._most, limit=seconds)

    def _change(self, threads: int, limit: float) -> None:
        """Switches to a number of threads; rounds longer than `limit` seconds then count as slower than before."""
        self._set(threads)
        self.threads, self._slow, self._kept, self._limit = threads, 0, 0.0, limit


def fastest(task: Callable[[], object], set_threads: Callable[[int], None], most: int) -> int:
    """Doubles the threads while a task gets at least 10 % faster; sets and returns the best count."""
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
