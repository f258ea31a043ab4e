"""Who steps the environments: this process, or workers that are replaced when they fail.

A batch is served in groups. Every group is a run of rows, cut over the workers of a set; each worker has a chunk in
several groups, so that it goes on with another while the learner thinks about one. With one group all workers step
together; with as many sets as workers no worker ever waits for another.
"""

import mmap
import os
import select
import sys
import time
import traceback
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.errors import ConfigError, WorkerError
from cavalcade.vector.process import Bell, PipeProcess, SharedProcess, WorkerProcess
from cavalcade.vector.slab import Slab, anonymous_file, layout, slab_over
from cavalcade.vector.source import Source
from cavalcade.vector.worker import CLOSE, RESET, STEP, fence, load, yield_core

_CHECK = 0.25  # seconds between looks at workers that may hang
_STARTING = 120.0  # seconds that a worker may take at least to make its environments
_FAREWELL = 1.0  # seconds that workers get to close their environments

Chunks = list[list[tuple[int, int]]]  # per worker: rows from … to
Member = tuple[int, int]  # worker and chunk


class Crew(ABC):
    """Steps the rows of a slab."""

    slab: Slab
    groups: tuple[slice, ...]
    waits: int = 0  # groups that were not ready when they were wanted
    restarts: int = 0  # workers that had to be replaced
    broken: NDArray[np.bool_] | None = None  # (N,): rows whose episode ended because a worker failed

    @abstractmethod
    def ask(self, group: int, command: int) -> None:
        """Has a group stepped or reset."""

    @abstractmethod
    def take(self) -> int:
        """Waits until some group that was asked is done; returns which."""

    @abstractmethod
    def close(self) -> None:
        """Ends the environments."""


class SerialCrew(Crew):
    """All environments in this process, one after the other."""

    def __init__(self, source: Source, num_envs: int):
        places, size = layout(num_envs, source.shapes, 1, 1)
        self.slab = slab_over(bytearray(size), places)
        self.groups = (slice(0, num_envs),)
        self._rows: Any = load(source.maker).make_rows(self.slab._asdict(), 0, num_envs, source.options)
        self._command = RESET

    def ask(self, group: int, command: int) -> None:
        """Notes what to do."""
        self._command = command

    def take(self) -> int:
        """Does it."""
        try:
            self._rows.reset() if self._command == RESET else self._rows.step()
        except Exception as error:
            raise WorkerError(
                f"an environment failed: {error!r}; mend it, or host it in workers, which are replaced "
                f"(--backend shared)\n{traceback.format_exc().strip()}"
            ) from None
        return 0

    def close(self) -> None:
        """Ends the environments."""
        self._rows.close()


class WorkerCrew(Crew):
    """Environments in worker processes.

    A worker that dies, hangs, or whose environments raise or return what is no number is reported and replaced. Its
    episodes end as truncations at the last observations that were delivered; `broken` counts them.

    Args:
        source: of the environments.
        num_envs: rows.
        backend: shared, in shared memory; or pipe, by pickled messages.
        workers: processes.
        async_factor: groups.
        timeout: seconds after which a worker counts as hanging.
        max_restarts: of workers, after which there is a `WorkerError`.
        spin: seconds to look for results before sleeping, as long as they come that soon.
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
        self._source, self._timeout, self._max_restarts = source, timeout, max_restarts
        self._spin = self._patience = spin if backend == "shared" else 0.0
        self.groups, self.chunks, self._members = deal(num_envs, workers, async_factor, source.agents)
        chunks = len(self.chunks[0])
        self._places, self._size = layout(num_envs, source.shapes, workers, chunks)
        self._file = anonymous_file(self._size) if backend == "shared" else -1
        block = mmap.mmap(self._file, self._size) if backend == "shared" else bytearray(self._size)
        self.slab = slab_over(block, self._places)
        self._done, self._poll = Bell(), select.poll()
        self._poll.register(self._done.read_end, select.POLLIN)
        self._waiting: list[int] = []  # groups that were asked, in that order
        self._asked, self._finished = self.slab.asked.data, self.slab.finished.data  # quicker to look at one by one
        self._patch: set[Member] = set()  # chunks whose episodes are ended here when they are taken
        self._lost: set[Member] = set()  # chunks whose episodes went down with a worker
        self._delivered = self.slab.observation.copy()
        self._seen, self._since = np.zeros(workers, np.int64), np.zeros(workers)
        self._next_check, self._closed = 0.0, False
        self.broken: NDArray[np.bool_] = np.zeros(num_envs, np.bool_)
        self.workers: dict[int, WorkerProcess] = {}
        self._words = ""  # the last of the worker that was replaced last
        try:
            for w in range(workers):
                self.workers[w] = self._start(w)
        except ConfigError:
            self.close()
            raise

    def ask(self, group: int, command: int) -> None:
        """Has a group stepped or reset; chunks that went down with a worker begin new episodes instead."""
        self._waiting.append(group)
        now = time.monotonic()
        for member in self._members[group]:
            w, k = member
            self._since[w] = now
            self.workers[w].ask(k, self._begin_lost(member, command) if member in self._lost else command, self.slab)

    def _begin_lost(self, member: Member, command: int) -> int:
        """What to ask of a chunk whose episodes went down with a worker: to begin new ones.

        If that is asked for anyway, but for some rows only, the others are told of their end by the next step.
        """
        w, k = member
        rows = slice(*self.chunks[w][k])
        if command == STEP:
            self._patch.add(member)
        if command == STEP or self.slab.wanted[rows].all():
            self._lost.discard(member)
        self.slab.wanted[rows] = True
        return RESET

    def take(self) -> int:
        """Waits until some group that was asked is done; returns which."""
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

    def _is_done(self, group: int) -> bool:
        return all(self._asked[member] == self._finished[member] for member in self._members[group])

    def _deliver(self, group: int) -> None:
        """Ends what has to be ended here, and remembers what was shown."""
        slab, rows = self.slab, self.groups[group]
        self.broken[rows] = False
        for w, k in self._patch.intersection(self._members[group]) if self._patch else ():
            self._patch.discard((w, k))
            part = slice(*self.chunks[w][k])
            slab.final_observation[part] = self._delivered[part]
            slab.reward[part] = 0
            slab.terminated[part], slab.truncated[part], self.broken[part] = False, True, True
            slab.figures[part] = np.nan
        self._delivered[rows] = slab.observation[rows]

    def _wait(self) -> None:
        """Sleeps until something happens; sees to workers that died or hang."""
        start = time.perf_counter()
        self._happened(start + self._patience)
        taken = time.perf_counter() - start
        self._patience = self._spin if taken < 2 * self._spin else 0.0  # no use to stay awake if results take long
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + _CHECK
            self._check_progress(now)

    def _happened(self, awake_until: float) -> None:
        """Until something has: awake at first, then asleep."""
        while time.perf_counter() < awake_until:
            yield_core()
            if any(self._is_done(group) for group in self._waiting):
                return
        self.slab.asleep[-1] = True
        fence()
        if any(self._is_done(group) for group in self._waiting):
            self.slab.asleep[-1] = False
            return
        ready = self._poll.poll(1000 * _CHECK)
        self.slab.asleep[-1] = False
        for handle, _ in ready:
            if handle == self._done.read_end:
                self._done.hush()
            else:
                self._listen(next(worker for worker in self.workers.values() if worker.listen == handle))

    def _listen(self, worker: WorkerProcess) -> None:
        try:
            worker.hear(self.slab)
        except (EOFError, OSError):
            self._replace(worker, worker.status())

    def _check_progress(self, now: float) -> None:
        """Replaces workers that have had something to do for too long."""
        slab = self.slab
        for worker in list(self.workers.values()):
            w, done = worker.index, int(slab.finished[worker.index].sum())
            if done != self._seen[w] or (slab.asked[w] == slab.finished[w]).all():
                self._seen[w], self._since[w] = done, now
            elif worker.process.poll() is not None:
                self._replace(worker, worker.status())
            elif now - self._since[w] > (limit := self._timeout if slab.ready[w] else max(self._timeout, _STARTING)):
                worker.ask_where()
                self._replace(worker, f"has not answered for {limit:g} s")

    def _replace(self, worker: WorkerProcess, why: str) -> None:
        """A new worker for one that failed; whatever it had in hand is begun anew."""
        w, slab = worker.index, self.slab
        report = f"worker {w} (environments {', '.join(f'{a} to {b - 1}' for a, b in worker.chunks)}) {why}"
        self._poll.unregister(worker.listen)
        words = worker.last_words()
        self.workers.pop(w).end()
        if not slab.ready[w] and not self.restarts:
            raise WorkerError(f"{report} before its environments were made{_quoted(words)}")
        self.restarts += 1
        if self.restarts > self._max_restarts:
            raise WorkerError(
                f"{report}, after {self._max_restarts} restarts; mend the environment, or allow more with "
                f"--max-restarts{_quoted(words)}"
            )
        said = ", with the same words as before" if words and words == self._words else _quoted(words)
        print(f"{report}; restarting it ({self.restarts} of {self._max_restarts}){said}", file=sys.stderr)
        self._words = words
        outstanding = np.flatnonzero(slab.asked[w] != slab.finished[w]).tolist()
        self._lost |= {(w, k) for k in range(len(worker.chunks)) if k not in outstanding}
        for k in outstanding:
            rows = slice(*worker.chunks[k])
            if slab.command[w, k] == STEP:
                self._patch.add((w, k))
            elif not slab.wanted[rows].all() and (w, k) not in self._patch:
                self._lost.add((w, k))  # a reset of some rows only: the others end with the next step
            slab.wanted[rows] = True
            if self._file < 0:  # the worker counted for itself
                slab.episodes[rows] += 1
        slab.finished[w] = slab.asked[w]
        self.workers[w] = self._start(w)
        for k in outstanding:
            self.workers[w].ask(k, RESET, slab)

    def _start(self, w: int) -> WorkerProcess:
        common: tuple[Any, ...] = (self._source, w, self.chunks[w], self._places, self._size)
        self.slab.ready[w] = False
        if self._file >= 0:
            process: WorkerProcess = SharedProcess(*common, file=self._file, done=self._done, spin=self._spin)
        else:
            process = PipeProcess(*common)
        self._poll.register(process.listen, select.POLLIN)
        self._since[w] = time.monotonic()
        return process

    def close(self) -> None:
        """Lets workers close their environments if they do so quickly, then ends them; gives the memory back."""
        if self._closed:
            return
        self._closed = True
        workers = self.workers.values()
        for worker in workers:
            if worker.process.poll() is None:
                worker.ask(0, CLOSE, self.slab)
        until = time.monotonic() + _FAREWELL
        while time.monotonic() < until and any(worker.process.poll() is None for worker in workers):
            time.sleep(0.005)
        for worker in workers:
            worker.end()
        self._done.close()
        if self._file >= 0:
            os.close(self._file)


def deal(
    num_rows: int, workers: int, groups: int, agents: int = 1
) -> tuple[tuple[slice, ...], Chunks, list[list[Member]]]:
    """Cuts rows into groups and groups over workers; as many rows as an environment has agents stay together.

    Returns the rows of each group; the chunks of each worker, as (start, stop); and the (worker, chunk) of each group.
    Workers form as many sets as keep at least two groups for each, so that there is always another to go on with.
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


def _quoted(words: str) -> str:
    """A worker's last words behind a message."""
    return f"\n{words}" if words else ""
