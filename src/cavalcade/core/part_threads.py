"""Threads that compute the parts of a batch in torch, each with one torch thread.

Torch's own threads spin while they wait for each other: beside other busy processes that makes them many times slower
than one thread. These sleep.
"""

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any


class PartThreads:
    """The calling thread and a pool of others, started at its first use; the caller has set torch to one thread."""

    def __init__(self):
        self.threads = 1
        self._pool: ThreadPoolExecutor | None = None

    def use(self, threads: int) -> None:
        """Sets the number of threads, the calling one included."""
        if threads != self.threads:
            self.threads, self._pool = threads, None

    def map(self, work: Callable[..., Any], *parts: Iterable[Any]) -> list[Any]:
        """The results of work(…) for each part, in order."""
        tasks = list(zip(*parts, strict=True))
        helpers = min(self.threads, len(tasks)) - 1
        if helpers < 1:
            return [work(*task) for task in tasks]
        found: list[Any] = [None] * len(tasks)
        numbers = itertools.count()

        def compute() -> None:
            while (i := next(numbers)) < len(tasks):
                found[i] = work(*tasks[i])

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, "part")
        waited_for = [self._pool.submit(compute) for _ in range(helpers)]
        try:
            compute()
        finally:
            wait(waited_for)
        for helper in waited_for:
            helper.result()  # raises what it raised
        return found
