"""Threads that compute the parts of a batch in torch, each with one torch thread.

Torch's own threads spin while they wait for each other: beside other busy processes that makes them many times slower
than one thread. These sleep.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class PartThreads:
    """A pool of threads, started at its first use; the caller has set torch to one thread."""

    def __init__(self):
        self.threads = 1
        self._pool: ThreadPoolExecutor | None = None

    def use(self, threads: int) -> None:
        """Sets the number of threads."""
        if threads != self.threads:
            self.threads, self._pool = threads, None

    def map(self, work: Callable[..., Any], *parts: Iterable[Any]) -> list[Any]:
        """The results of work(…) for each part, in order."""
        if self.threads == 1:
            return list(map(work, *parts))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "part")
        return list(self._pool.map(work, *parts))
