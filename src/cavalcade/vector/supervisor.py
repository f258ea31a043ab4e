"""What pools of worker processes share: watching workers, reporting and ending those that fail, counting restarts."""

import select
import signal
import sys
import time
from collections.abc import Callable

from cavalcade.core.errors import RestartError, WorkerError
from cavalcade.vector.process import Wakeup, WorkerProcess

CHECK = 0.25  # seconds between checks for workers that hang
STARTING = 120.0  # least timeout in seconds while a worker makes its environments
_FAREWELL = 1.0  # seconds for workers to close their environments


class WatchClock:
    """Seconds in which this process watched its workers.

    It advances by at most a second from one reading to the next: time in which this process was itself stopped, or had
    other work, says nothing about a worker.
    """

    _STEP = 1.0

    def __init__(self):
        self._seconds, self._last = 0.0, time.monotonic()

    def __call__(self) -> float:
        now = time.monotonic()
        self._seconds += min(now - self._last, self._STEP)
        self._last = now
        return self._seconds


class Supervisor:
    """Worker processes by number, and a poll object that wakes on their answers or their death."""

    restarts: int = 0

    def __init__(self, max_restarts: int):
        self._max_restarts = max_restarts
        self.workers: dict[int, WorkerProcess] = {}
        self._done, self._poll = Wakeup(), select.poll()
        self._poll.register(self._done.read_end, select.POLLIN)
        self._watched = WatchClock()  # what timeouts of workers are measured by
        self._words = ""  # last output of the worker that was replaced last
        self._closed = False

    def _watch(self, worker: WorkerProcess) -> None:
        """Adds a worker that was just started."""
        self.workers[worker.index] = worker
        self._poll.register(worker.listen, select.POLLIN)

    def _sleep(self, heard: Callable[[WorkerProcess], None], seconds: float = CHECK) -> None:
        """Sleeps until a worker is done, or for so long; heard: called for a worker that spoke or died."""
        for handle, _ in self._poll.poll(1000 * seconds):
            if handle == self._done.read_end:
                self._done.clear()
            else:
                heard(next(worker for worker in self.workers.values() if worker.listen == handle))

    def _retire(self, worker: WorkerProcess, why: str, *, ready: bool) -> None:
        """Ends a worker that failed and reports it; raises `WorkerError` if it is not to be replaced.

        ready: whether it had made its environments.
        """
        rows = ", ".join(f"{start} to {stop - 1}" for start, stop in worker.chunks)
        report = f"worker {worker.index} (environments {rows}) {why}"
        self._poll.unregister(worker.listen)
        words, killed = worker.last_words(), worker.process.poll() == -signal.SIGKILL
        self.workers.pop(worker.index).end()
        if not ready and not killed and not self.restarts:  # killed: from outside, which says nothing about the next
            raise WorkerError(f"{report} before its environments were made{_quoted(words)}")
        self.restarts += 1
        if self.restarts > self._max_restarts:
            said = f"{report}, after {self._max_restarts} restarts; fix the environment{_quoted(words)}"
            raise RestartError(said, self._max_restarts)
        said = ", with the same output as before" if words and words == self._words else _quoted(words)
        print(f"{report}; restarting it ({self.restarts} of {self._max_restarts}){said}", file=sys.stderr)
        self._words = words

    def _end_all(self, tell: Callable[[WorkerProcess], None]) -> None:
        """Tells workers to close their environments, gives them a second for it, then kills them."""
        workers = self.workers.values()
        for worker in workers:
            if worker.process.poll() is None:
                tell(worker)
        until = time.monotonic() + _FAREWELL
        while time.monotonic() < until and any(worker.process.poll() is None for worker in workers):
            time.sleep(0.005)
        for worker in workers:
            self._poll.unregister(worker.listen)
            worker.end()
        self.workers.clear()


def _quoted(words: str) -> str:
    return f"\n{words}" if words else ""
