"""Local workers that play fragments by themselves: processes that share memory with the learner."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError, StateError
from cavalcade.vector import player
from cavalcade.vector.buffers import anonymous_file, buffers_over, layout
from cavalcade.vector.fragments import Fragment, FragmentPlan, fragment_layout, fragment_shapes
from cavalcade.vector.pool import WorkerPool, suitable
from cavalcade.vector.process import WokenProcess, WorkerProcess
from cavalcade.vector.source import Source
from cavalcade.vector.supervisor import CHECK, STARTING, Supervisor
from cavalcade.vector.worker import RESET, arrays, fence

_IDENTITY = ("seed", "index", "episodes")


class FragmentPool(Supervisor, WorkerPool):
    """Workers that act by themselves; see `fragments` for how far they may be ahead or behind.

    A worker that dies or hangs is replaced. The new process continues the fragment of the old one; the episodes that
    were lost are truncated at the last observation that was recorded. The environments cannot be stepped from outside.
    """

    def __init__(self, source: Source, num_envs: int, *, workers: int, timeout: float, max_restarts: int):
        if num_envs % (workers * source.agents):
            count = num_envs // source.agents
            raise ConfigError(
                f"{count} environments do not divide into {workers} workers; take --workers {suitable(count, workers)}"
            )
        super().__init__(max_restarts)
        self._source, self._timeout = source, timeout
        each = num_envs // workers
        self.groups = tuple(slice(w * each, (w + 1) * each) for w in range(workers))
        self._places, self._size = layout(num_envs, source.shapes, 1, 1)
        self.shared = buffers_over(bytearray(self._size), self._places)  # as the learner knows them
        self._plan: FragmentPlan | None = None
        self._file, self._clock, self._version = -1, 0, -1
        self._seen, self._since = np.zeros(workers, np.int64), np.zeros(workers)
        self._next_check = 0.0
        self._reset: list[int] = []  # groups

    def submit(self, group: int, command: int) -> None:
        """Resets only: the workers begin new episodes with their next fragment."""
        if command != RESET:
            raise StateError("these workers act by themselves; set staleness to 0 to step their environments")
        self._reset.append(group)

    def wait_any(self) -> int:
        if self._plan and self._version >= 0:  # what was played so far is given up
            self._stop()
            self._begin(self._plan)
        return self._reset.pop(0)

    def start(self, plan: FragmentPlan) -> None:
        """Starts the workers; they play once a policy is published."""
        self._begin(plan)

    def _begin(self, plan: FragmentPlan) -> None:
        self._plan, self._version = plan, -1
        num_envs, workers = len(self.shared.seed), len(self.groups)
        shapes = self._source.shapes
        self._fields, self._bytes = fragment_layout(plan, num_envs, shapes, workers)
        self._played = list(fragment_shapes(plan, num_envs, shapes))
        self._file = anonymous_file(self._bytes)
        self._all = arrays(mmap.mmap(self._file, self._bytes), self._fields)
        self._all["newest"][:] = self._all["stamp"][:] = -1
        self._all["lead"][:] = 1
        self._all["keys"][:] = plan.keys
        try:
            for w in range(workers):
                self._start(w)
        except ConfigError:
            self.close()
            raise

    def _start(self, w: int) -> None:
        plan, rows = self._plan, self.groups[w]
        assert plan
        self._all["ready"][w] = False
        task: dict[str, Any] = {"places": self._places, "size": self._size, "policy": plan.policy}
        task |= {"memory": self._file, "bytes": self._bytes, "fragments": self._fields, "fields": self._played}
        task["player"] = plan.player or str(Path(player.__file__).absolute())
        chunks = [(rows.start, rows.stop)]
        self._watch(WokenProcess(self._source, w, chunks, task, file=self._file, done=self._done))
        self._since[w] = self._watched()

    def publish(self, version: int, values: NDArray[np.float32]) -> None:
        """Gives workers a new policy: weights, shift and scale of observations."""
        a, first = self._all, self._version < 0
        self._sleep(self._died, 0.0)  # a worker may have died while nobody waited for it
        self._check_progress()
        if version == self._version:
            return
        if first:
            for name in _IDENTITY:
                a[name][:] = getattr(self.shared, name)
            a["clock"][0], a["granted"][:], self._since[:] = self._clock, version, self._watched()
        a["stamp"][version % 2] = -1
        fence()
        a["policy"][version % 2] = values
        fence()
        a["stamp"][version % 2] = version
        fence()
        a["newest"][0] = self._version = version
        fence()
        for worker in self.workers.values():
            self._wake(worker)

    def _wake(self, worker: WorkerProcess) -> None:
        assert isinstance(worker, WokenProcess)
        fence()
        if self._all["asleep"][worker.index]:
            worker.wake()

    def playing(self) -> list[int]:
        """Versions of the policies of unfinished fragments."""
        a, plan = self._all, self._plan
        assert plan
        unfinished = np.flatnonzero(a["begun"] > a["done"] // plan.steps)
        return [int(a["version"][w, (a["begun"][w] - 1) % plan.limit]) for w in unfinished]

    def finished(self) -> list[Fragment]:
        """Fragments that are ready to be taken; those of one worker in order."""
        a, plan, found = self._all, self._plan, []
        assert plan
        ready = (a["done"] // plan.steps).tolist()
        fence()
        for w, rows in enumerate(self.groups):
            for number in range(int(a["taken"][w]), ready[w]):
                s = number % plan.limit
                fields = {name: a[name][s][:, rows] for name in self._played}
                found.append(Fragment(w, number, int(a["version"][w, s]), fields, a["delivered"][s, rows]))
        return found

    def take(self, fragment: Fragment) -> None:
        """Gives a finished fragment back; its memory may be overwritten from here on."""
        a, w, rows = self._all, fragment.worker, self.groups[fragment.worker]
        self.shared.episodes[rows] = fragment.episodes
        a["granted"][w] = self._version
        fence()
        a["taken"][w] += 1
        self._wake(self.workers[w])

    @property
    def busy(self) -> NDArray[np.float64]:
        """Seconds of work of each worker, up to its latest fragment."""
        return self._all["busy"]

    @property
    def clocks(self) -> NDArray[np.int64]:
        """Steps that were taken from each worker."""
        assert self._plan
        return self._clock + self._all["taken"] * self._plan.steps

    def set_clock(self, clock: int) -> None:
        """Continues after so many steps; to be called before the first fragment, or before a reset."""
        self._clock = clock

    def allow(self, fragments: int) -> None:
        """Sets how many finished fragments of a worker may wait to be taken."""
        if fragments != self._all["lead"][0]:
            self._all["lead"][0] = fragments
            for worker in self.workers.values():
                self._wake(worker)

    def wait(self, known: int) -> None:
        """Waits until more than `known` fragments are ready to be taken, or a worker is replaced."""
        a, restarts = self._all, self.restarts
        self.waits += 1
        while self._ready() <= known and self.restarts == restarts:
            a["asleep"][-1] = True
            fence()
            if self._ready() <= known:
                self._sleep(self._died)
            a["asleep"][-1] = False
            self._check_progress()

    def _ready(self) -> int:
        """The number of fragments that are ready to be taken."""
        assert self._plan
        return int((self._all["done"] // self._plan.steps - self._all["taken"]).sum())

    def _check_progress(self) -> None:
        """Now and then, replaces workers that have work to do and made no progress for too long."""
        a, plan, now = self._all, self._plan, self._watched()
        assert plan
        if now < self._next_check or self._version < 0:
            return
        self._next_check = now + CHECK
        for worker in list(self.workers.values()):
            w, done = worker.index, int(a["done"][worker.index])
            limit = self._timeout if a["ready"][w] else max(self._timeout, STARTING)
            if done != self._seen[w] or done // plan.steps - a["taken"][w] >= a["lead"][0]:
                self._seen[w], self._since[w] = done, now
            elif now - self._since[w] > limit:
                worker.ask_where()
                self._replace(worker, f"has not answered for {limit:g} s")

    def _died(self, worker: WorkerProcess) -> None:
        self._replace(worker, worker.status())

    def _replace(self, worker: WorkerProcess, why: str) -> None:
        self._retire(worker, why, ready=bool(self._all["ready"][worker.index]))
        self._start(worker.index)

    def _stop(self) -> None:
        """Ends the workers and frees the shared memory."""

        def tell(worker: WorkerProcess) -> None:
            self._all["closing"][0] = True
            self._wake(worker)

        self._end_all(tell)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def close(self) -> None:
        """Gives workers a second to close their environments, then kills them; frees the shared memory."""
        if self._closed:
            return
        self._closed = True
        self._stop()
        self._done.close()
