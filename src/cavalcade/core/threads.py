"""Thread counts of Numba and torch, and a governor that reacts when another process takes a core.

More threads than free cores make every parallel loop wait for the slowest; two torch threads on a loaded two-core
machine were seen to run fifty times slower than one.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numba
import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray

from cavalcade.core.jit import all_threads, config, kernel, rule
from cavalcade.core.slices import short_slices

_WORTH_IT = 1.1  # least speedup for which the threads are doubled
_ROUNDS = 5
_PROBE, _PROBES = 3_000_000, 3  # rounds of arithmetic in a probe, about 5 ms; probes, of which the best counts


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


@contextmanager
def free_threads() -> Iterator[None]:
    """Within the block, kernels use no more threads than there are free cores, in short time slices."""
    short_slices()
    before = numba.get_num_threads()
    numba.set_num_threads(free_cores(before))
    try:
        yield
    finally:
        numba.set_num_threads(before)


class ThreadGovernor:
    """Uses as many threads as have a core to themselves; threads that wait for one another are slow beside neighbours.

    `lap` reports the seconds of each round of work. Free cores are counted at the start and once more soon after, after
    rounds much slower than the best, and while there are fewer of them than threads wanted, from time to time.
    """

    _SLOW, _PAUSE = 1.5, 0.5  # slowdown; least seconds between counts
    _PATIENCE, _LONGEST = 0.5, 15.0  # seconds between counts with fewer threads, at first and after many in vain
    _FALSE_ALARMS = 3  # slow rounds without a neighbour after which the work itself is taken to be slower

    def __init__(
        self,
        set_threads: Callable[[int], None] = numba.set_num_threads,
        count_free: Callable[[int, int], int] | None = None,
    ):
        self._set, self._count, self._most = set_threads, count_free or free_cores, numba.get_num_threads()
        self.threads = self._most
        self._best, self._since, self._patience, self._alarms = float("inf"), 0.0, self._PATIENCE, 0
        self._confirmed = False  # counted twice: without a best round from before, slow ones do not tell
        self._adapt()

    def lap(self, seconds: float) -> None:
        """Reports the seconds of a round and adapts the number of threads."""
        self._since += seconds
        self._best = min(self._best, seconds)  # on fewer threads, too: more of them must not be slower
        if self.threads < self._most:
            if self._since > self._patience:
                self._patience = min(2 * self._patience, self._LONGEST)
                self._adapt()
            return
        self._patience = self._PATIENCE
        slow = seconds > self._SLOW * self._best
        if (slow or not self._confirmed) and self._since > self._PAUSE:
            self._confirmed = True
            self._adapt()
            self._alarms = self._alarms + slow if self.threads == self._most else 0
            if self._alarms == self._FALSE_ALARMS:
                self._best, self._alarms = seconds, 0

    def _adapt(self) -> None:
        self._since = 0.0
        # beside neighbours one probe has to do: each takes longer there, and a wrong one is soon repeated
        free = self._count(self._most, _PROBES if self.threads == self._most else 1)
        if free != self.threads:
            self._set(free)
            self.threads = free


def free_cores(most: int, probes: int = _PROBES) -> int:
    """The number of threads, from 1 to `most`, that would have a core to themselves now.

    They compute for some milliseconds at once; how much longer that takes than for one thread tells how many cores
    they had. The best of some probes counts; that all cores are free must show twice in a row, since a probe may fit
    between two ticks of the scheduler.
    """
    if most == 1 or config.DISABLE_JIT:
        return most
    before, marks = numba.get_num_threads(), np.zeros(most, np.uint64)
    numba.set_num_threads(most)
    try:
        free = 1
        for _ in range(probes):
            found = round(_cores_had(marks))
            if found >= most:
                found = round(_cores_had(marks))
            free = max(free, min(most, found))
            if free == most:
                break
    finally:
        numba.set_num_threads(before)
    return free


def _cores_had(marks: NDArray) -> float:
    """Cores that as many threads as there are marks had on average."""
    used = time.thread_time()
    marks[0] = _compute(_PROBE)
    alone = time.thread_time() - used  # not counting the time that others had the core
    start = time.perf_counter()
    _compute_together(_PROBE, marks)
    return len(marks) * alone / (time.perf_counter() - start)


@kernel
def _compute(rounds):
    """Some arithmetic that no compiler shortens."""
    return _xorshift(rounds)


@kernel(parallel=True)
def _compute_together(rounds, marks):
    """As `_compute`, on every thread."""
    for i in prange(len(marks)):
        marks[i] = _xorshift(rounds)


@rule
def _xorshift(rounds):
    x = np.uint64(88172645463325252)
    for _ in range(rounds):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
    return x


def fastest(task: Callable[[], object], set_threads: Callable[[int], None], most: int) -> int:
    """Doubles the threads while a task gets at least 10 % faster; sets and returns the best count.

    Beside busy processes it is all of them; a `ThreadGovernor` then uses as many as there are free cores.
    """
    if free_cores(most) < most:  # times would tell of the neighbours
        set_threads(most)
        return most
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
