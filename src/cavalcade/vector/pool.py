"""Worker pools, which step the environments: in this process, or in workers that are replaced when they fail.

A batch is served in groups. A group is a range of rows, split over the workers of a set; each worker has a chunk in
several groups, so that it steps one while the policy computes actions for another. With one group all workers step
together; with as many sets as workers no worker waits for another.
"""

import mmap
import os
import time
import traceback
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError, WorkerError
from cavalcade.vector.buffers import SharedBuffers, anonymous_file, buffers_over, layout
from cavalcade.vector.process import PipeProcess, SharedProcess, WorkerProcess
from cavalcade.vector.source import Source
from cavalcade.vector.supervisor import CHECK, STARTING, Supervisor
from cavalcade.vector.worker import CLOSE, RESET, STEP, Polling, fence, load

Chunks = list[list[tuple[int, int]]]  # per worker: rows from … to
Member = tuple[int, int]  # worker and chunk


class WorkerPool(ABC):
    """Steps the environments whose rows are in the shared buffers."""

    shared: SharedBuffers
    groups: tuple[slice, ...]
    waits: int = 0  # number of times that no submitted group was ready
    restarts: int = 0  # workers that were replaced
    broken: NDArray[np.bool_] | None = None  # (N,): rows whose episode ended because a worker failed

    @abstractmethod
    def submit(self, group: int, command: int) -> None:
        """Starts a step or reset (`STEP`, `RESET`) of a group."""

    @abstractmethod
    def wait_any(self) -> int:
        """Waits until any submitted group is done; returns its number."""

    def ready(self) -> bool:
        """Whether the next `wait_any` returns at once; False if that is not known."""
        return False

    @property
    def busy(self) -> NDArray[np.float64] | None:
        """Seconds of work of each worker, (W,); None if they are not measured."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Closes the environments."""


class SerialPool(WorkerPool):
    """All environments in this process, one after the other."""

    def __init__(self, source: Source, num_envs: int):
        places, size = layout(num_envs, source.shapes, 1, 1)
        self.shared = buffers_over(bytearray(size), places)
        self.groups = (slice(0, num_envs),)
        self.rows: Any = load(source.maker).make_rows(self.shared._asdict(), 0, num_envs, source.options)
        self._command = RESET

    def submit(self, group: int, command: int) -> None:
        self._command = command

    def wait_any(self) -> int:
        try:
            self.rows.reset() if self._command == RESET else self.rows.step()
        except (Exception, SystemExit) as error:
            raise WorkerError(f"an environment failed: {error!r}; fix it\n{traceback.format_exc().strip()}") from None
        return 0

    def close(self) -> None:
        self.rows.close()


class ProcessPool(Supervisor, WorkerPool):
    """Environments in worker processes.

    A worker that dies or hangs, or whose environments raise or return NaN or infinity, is reported and replaced. Its
    episodes are truncated at the last observations that were delivered; `broken` marks them.

    Args:
        source: of the environments.
        num_envs: number of rows.
        backend: shared (shared memory) or pipe (pickled messages).
        workers: number of processes.
        async_factor: number of groups.
        timeout: seconds after which a worker counts as hanging.
        max_restarts: of workers, before a `WorkerError` is raised.
        spin: seconds to poll for results before sleeping, as long as they usually arrive in that time.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        *,
        backend: str,
        workers: int,
        async_factor: int,
        timeout: float,
        max_restarts: int,
        spin: float = 0.0,
    ):
        self._source, self._timeout = source, timeout
        self._spin = spin if backend == "shared" else 0.0
        self._polling = Polling(self._spin)
        self.groups, self.chunks, self._members = deal(num_envs, workers, async_factor, source.agents)
        super().__init__(max_restarts)
        chunks = len(self.chunks[0])
        self._places, self._size = layout(num_envs, source.shapes, workers, chunks)
        self._file = anonymous_file(self._size) if backend == "shared" else -1
        block = mmap.mmap(self._file, self._size) if backend == "shared" else bytearray(self._size)
        self.shared = buffers_over(block, self._places)
        self._waiting: list[int] = []  # submitted groups, in that order
        self._asked, self._finished = self.shared.asked.data, self.shared.finished.data  # faster per element
        self._patch: set[Member] = set()  # chunks whose episodes are truncated when they are delivered
        self._lost: set[Member] = set()  # chunks whose episodes were lost with a worker
        self._delivered = self.shared.observation.copy()
        self._seen, self._since = np.zeros(workers, np.int64), np.zeros(workers)
        self._next_check = 0.0
        self.broken: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        try:
            for w in range(workers):
                self._start(w)
        except ConfigError:
            self.close()
            raise

    def submit(self, group: int, command: int) -> None:
        """Starts a step or reset of a group; chunks that were lost with a worker begin new episodes instead."""
        self._waiting.append(group)
        now = self._watched()
        for member in self._members[group]:
            w, k = member
            self._since[w] = now
            self.workers[w].submit(
                k, self._begin_lost(member, command) if member in self._lost else command, self.shared
            )

    def _begin_lost(self, member: Member, command: int) -> int:
        """Makes a chunk whose episodes were lost with a worker begin new ones; returns the command.

        If the command is a reset of some rows only, the next step truncates the episodes of the other rows.
        """
        w, k = member
        rows = slice(*self.chunks[w][k])
        if command == STEP:
            self._patch.add(member)
        if command == STEP or self.shared.wanted[rows].all():
            self._lost.discard(member)
        self.shared.wanted[rows] = True
        return RESET

    def wait_any(self) -> int:
        waited = False
        while True:
            for i, group in enumerate(self._waiting):
                if self._is_done(group):
                    fence()
                    del self._waiting[i]
                    self._deliver(group)
                    self.waits += waited
                    return group
            waited = True
            self._wait()

    @property
    def busy(self) -> NDArray[np.float64] | None:
        return self.shared.busy if self._file >= 0 else None

    def ready(self) -> bool:
        return any(self._is_done(group) for group in self._waiting)

    def _is_done(self, group: int) -> bool:
        return all(self._asked[member] == self._finished[member] for member in self._members[group])

    def _deliver(self, group: int) -> None:
        """Truncates the episodes of patched chunks; keeps a copy of the observations."""
        shared, rows = self.shared, self.groups[group]
        self.broken[rows] = False
        for w, k in self._patch.intersection(self._members[group]) if self._patch else ():
            self._patch.discard((w, k))
            part = slice(*self.chunks[w][k])
            shared.final_observation[part] = self._delivered[part]
            shared.reward[part] = 0
            shared.terminated[part], shared.truncated[part], self.broken[part] = False, True, True
            shared.episode_stats[part] = np.nan
        self._delivered[rows] = shared.observation[rows]

    def _wait(self) -> None:
        """Sleeps until a worker reports; replaces workers that died or hang."""
        start = time.perf_counter()
        self._happened(start)
        end = time.perf_counter()
        self._polling.waited(end - start, end)
        now = self._watched()
        if now >= self._next_check:
            self._next_check = now + CHECK
            self._check_progress(now)

    def _happened(self, since: float) -> None:
        """Returns when a group may be done: polls at first, then sleeps."""
        while self._polling.goes_on(since):
            if any(self._is_done(group) for group in self._waiting):
                return
        self.shared.asleep[-1] = True
        fence()
        if any(self._is_done(group) for group in self._waiting):
            self.shared.asleep[-1] = False
            return
        self._sleep(self._listen)
        self.shared.asleep[-1] = False

    def _listen(self, worker: WorkerProcess) -> None:
        try:
            worker.hear(self.shared)
        except (EOFError, OSError):
            self._replace(worker, worker.status())

    def _check_progress(self, now: float) -> None:
        """Replaces workers that died or made no progress for too long."""
        shared = self.shared
        for worker in list(self.workers.values()):
            w, done = worker.index, int(shared.finished[worker.index].sum())
            if done != self._seen[w] or (shared.asked[w] == shared.finished[w]).all():
                self._seen[w], self._since[w] = done, now
            elif worker.process.poll() is not None:
                self._replace(worker, worker.status())
            elif now - self._since[w] > (limit := self._timeout if shared.ready[w] else max(self._timeout, STARTING)):
                worker.ask_where()
                self._replace(worker, f"has not answered for {limit:g} s")

    def _replace(self, worker: WorkerProcess, why: str) -> None:
        """Replaces a worker that failed; its chunks begin new episodes."""
        w, shared = worker.index, self.shared
        self._retire(worker, why, ready=bool(shared.ready[w]))
        outstanding = np.flatnonzero(shared.asked[w] != shared.finished[w]).tolist()
        self._lost |= {(w, k) for k in range(len(worker.chunks)) if k not in outstanding}
        for k in outstanding:
            rows = slice(*worker.chunks[k])
            if shared.command[w, k] == STEP:
                self._patch.add((w, k))
            elif not shared.wanted[rows].all() and (w, k) not in self._patch:
                self._lost.add((w, k))  # a reset of some rows only: the next step truncates the others
            shared.wanted[rows] = True
            if self._file < 0:  # the worker has its own count
                shared.episodes[rows] += 1
        shared.finished[w] = shared.asked[w]
        self._start(w)
        for k in outstanding:
            self.workers[w].submit(k, RESET, shared)

    def _start(self, w: int) -> None:
        common: tuple[Any, ...] = (self._source, w, self.chunks[w], self._places, self._size)
        self.shared.ready[w] = False
        if self._file >= 0:
            process: WorkerProcess = SharedProcess(*common, file=self._file, done=self._done, spin=self._spin)
        else:
            process = PipeProcess(*common)
        self._watch(process)
        self._since[w] = self._watched()

    def close(self) -> None:
        """Gives workers a second to close their environments, then kills them; frees the shared memory."""
        if self._closed:
            return
        self._closed = True
        self._end_all(lambda worker: worker.submit(0, CLOSE, self.shared))
        self._done.close()
        if self._file >= 0:
            os.close(self._file)


def deal(
    num_rows: int, workers: int, groups: int, agents: int = 1
) -> tuple[tuple[slice, ...], Chunks, list[list[Member]]]:
    """Splits rows into groups and groups over workers; the agents of an environment stay together.

    Returns the rows of each group; the chunks of each worker, as (start, stop); and the (worker, chunk) of each group.
    Workers form the largest number of sets with at least two groups each, so that a worker always has one to step.
    """
    sets = max(s for s in range(1, workers + 1) if workers % s == groups % s == 0 and (s == 1 or 2 * s <= groups))
    per_set, num_envs = workers // sets, num_rows // agents
    if num_envs < groups * per_set:
        raise ConfigError(
            f"num_envs is {num_envs}; {workers} workers in {groups} groups need at least {groups * per_set}, lower "
            "--workers or --async-factor"
        )
    chunks: Chunks = [[] for _ in range(workers)]
    members: list[list[Member]] = []
    bounds = [g * num_envs // groups for g in range(groups + 1)]
    for g, start in enumerate(bounds[:-1]):
        size = bounds[g + 1] - start
        mine = range((g % sets) * per_set, (g % sets + 1) * per_set)
        members.append([(w, len(chunks[w])) for w in mine])
        for i, w in enumerate(mine):
            first, last = start + i * size // per_set, start + (i + 1) * size // per_set
            chunks[w].append((agents * first, agents * last))
    rows = tuple(slice(agents * start, agents * stop) for start, stop in pairwise(bounds))
    return rows, chunks, members


def suitable(num_envs: int, cpus: int) -> int:
    """The largest number of workers with a CPU each and equal shares of the environments."""
    return max((n for n in range(1, max(cpus, 1) + 1) if num_envs % n == 0), default=1)
