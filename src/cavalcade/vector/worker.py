"""A worker process: sleeps until it is woken, steps or resets chunks of rows, reports that it is done.

Run as a file by any interpreter from Python 3.8 on that has numpy, so that old environments can be hosted too; it
imports nothing of Cavalcade unless the maker of its rows is a module of it. The argument is JSON. It inherits `life`, a
pipe whose other end only the parent holds: when that closes, the kernel kills the worker. With shared memory it also
inherits the memory and the wakeups `go` and `done`; else messages pass through a socket. A worker with a policy plays
whole fragments by itself.
"""

import contextlib
import ctypes
import faulthandler
import fcntl
import importlib
import json
import mmap
import os
import runpy
import select
import signal
import sys
import threading
import time
import traceback
import types

import numpy as np

STEP, RESET, CLOSE = range(3)
ONE = (1).to_bytes(8, sys.byteorder)  # a wakeup: adds to an eventfd, or is a message in a pipe
ANSWER = ("observation", "final_observation", "reward", "terminated", "truncated", "action_mask", "episode_stats",
          "true_state", "episodes")  # fmt: skip
_MOST_SAID = 1 << 20  # bytes of standard error kept
_NAP = 100  # milliseconds after which a sleeping worker checks for work by itself
_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of prctl
_LOCK = threading.Lock()
yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class Polling:
    """Polls for up to `spin` seconds before sleeping, where that pays.

    It does not after a wait that was long. Nor does it beside a busy process of others: a yielded core comes back only
    after that process's time slice, milliseconds later, while a sleeper that is woken gets a core soon. So a yield that
    takes this long stops polling for some time, longer each time it happens again.
    """

    _LOST = 1e-3  # seconds of a yield; shorter ones may be another worker of ours
    _SHORTEST, _LONGEST = 0.05, 3.0  # seconds without polling

    def __init__(self, spin: float):
        self._spin = self._patience = spin
        self._pause, self._paused_until = self._SHORTEST, 0.0

    def goes_on(self, since: float) -> bool:
        """Yields the core once, if one may still poll in a wait that began at `since`; whether it did."""
        now = time.perf_counter()
        if now - since >= self._patience:
            return False
        yield_core()
        after = time.perf_counter()
        if after - now > self._LOST:
            soon = now - self._paused_until < self._pause
            self._pause = min(2 * self._pause, self._LONGEST) if soon else self._SHORTEST
            self._paused_until, self._patience = after + self._pause, 0.0
        return True

    def waited(self, seconds: float, now: float) -> None:
        """Reports how long a wait took."""
        self._patience = self._spin if seconds < 2 * self._spin and now >= self._paused_until else 0.0


def end_with_parent(life, platform=sys.platform):
    """Ends this process once the other end of a pipe is closed, by SIGIO, which kills by itself on Linux only."""
    if platform != "linux":
        signal.signal(signal.SIGIO, lambda *_: os._exit(4))
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, os.O_ASYNC)


def exact_timers():
    """Ends sleeps when they are over: by default Linux lets a timer be 50 µs late, which many short waits add up to."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # no C library to be found
            ctypes.CDLL(None).prctl(_TIMER_SLACK, 1, 0, 0, 0)


def fence():
    """A memory fence: reads and writes before it take effect before those after it, as seen by other processes.

    Processors may reorder plain reads and writes, but not across a lock.
    """
    with _LOCK:
        pass


def main(task):
    """Serves until a CLOSE command, or until the parent is gone."""
    sys.path[:1] = task["path"] or []  # instead of the folder of this file
    buffer = mmap.mmap(task["shared"], task["size"]) if "shared" in task else bytearray(task["size"])
    fields = arrays(buffer, task["places"])
    if "policy" in task:
        shared = arrays(mmap.mmap(task["memory"], task["bytes"]), task["fragments"])
        fields.update({name: shared[name] for name in ("seed", "index", "episodes")})
    make = load(task["maker"]).make_rows
    rows = [make(fields, start, stop, task["options"]) for start, stop in task["chunks"]]
    if "policy" in task:
        serve_fragments(fields, shared, rows[0], task)
    elif "shared" in task:
        serve_shared(fields, rows, task)
    else:
        serve_pipe(fields, rows, task)
    for part in rows:
        part.close()


def arrays(buffer, places):
    """Views into a block of memory, by name."""
    return {name: np.ndarray(shape, kind, buffer, at) for name, shape, kind, at in places}


def load(maker):
    """The module with `make_rows`, by name or by file."""
    if not maker.endswith(".py"):
        return importlib.import_module(maker)
    content = runpy.run_path(maker)
    return types.SimpleNamespace(**content)


def perform(part, command):
    if command == STEP:
        part.step()
    else:
        part.reset()


def forget():
    """Truncates standard error if it is large."""
    if os.fstat(2).st_size > _MOST_SAID:
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)


def serve_shared(fields, rows, task):
    """Polls shared memory for work; after `spin` seconds without any, sleeps until it is woken."""
    w, go, done = task["worker"], task["go"], task["done"]
    asked, finished, command = (fields[name][w].data for name in ("asked", "finished", "command"))
    asleep, busy, polling, clock = fields["asleep"], fields["busy"], Polling(task["spin"]), time.perf_counter
    bell = select.poll()
    bell.register(go, select.POLLIN)
    fields["ready"][w] = True
    idle_since = clock()
    while True:
        if asked == finished:
            if polling.goes_on(idle_since):
                continue
            asleep[w] = True
            fence()
            if asked == finished and bell.poll(_NAP):
                os.read(go, 4096)
            asleep[w] = False
            if os.getppid() != task["parent"]:
                return
            continue
        fence()
        forget()
        begun = clock()
        polling.waited(begun - idle_since, begun)
        for k, part in enumerate(rows):
            if asked[k] != finished[k]:
                if command[k] == CLOSE:
                    return
                number = asked[k]
                perform(part, command[k])
                fence()
                finished[k] = number
                fence()
                if asleep[-1]:
                    os.write(done, ONE)
        idle_since = clock()
        busy[w] += idle_since - begun


def serve_pipe(fields, rows, task):
    """Receives pickled commands from its parent and answers with pickled rows."""
    from multiprocessing.connection import Connection

    connection = Connection(task["socket"])
    connection.send(None)
    while True:
        k, command, inputs = connection.recv()
        if command == CLOSE:
            return
        start, stop = task["chunks"][k]
        for name, values in inputs.items():
            fields[name][start:stop] = values
        perform(rows[k], command)
        forget()
        connection.send((k, {name: fields[name][start:stop] for name in ANSWER}))


def serve_fragments(fields, shared, rows, task):
    """Plays fragments with the newest policy, up to `lead` more than the parent has taken.

    `done` counts steps and `begun` fragments, across restarts of the worker: a new process continues the fragment
    in which the one before it died, and truncates the episodes that were lost with it. A fragment is announced with the
    version of its policy before the policy is read, so that the parent never finds itself further ahead than it knows.
    """
    w, (start, stop), slots = task["worker"], task["chunks"][0], len(shared["reward"])
    mine = slice(start, stop)
    steps, names = shared["reward"].shape[1], task["fields"]
    fragments = [{name: shared[name][s][:, mine] for name in names} for s in range(slots)]
    done, begun, taken, version, granted = (
        shared[name][w : w + 1] for name in ("done", "begun", "taken", "version", "granted")
    )
    newest, lead, stamp, asleep, closing = (shared[name] for name in ("newest", "lead", "stamp", "asleep", "closing"))
    player = load(task["player"]).Player(rows, fields, start, stop, task["policy"], shared["keys"][mine])
    bell, fresh = select.poll(), True
    bell.register(task["go"], select.POLLIN)
    shared["ready"][w] = True

    def must_wait():
        return newest[0] < 0 or done[0] // steps - taken[0] >= lead[0]

    while not closing[0]:
        if must_wait():
            asleep[w] = True
            fence()
            if must_wait() and not closing[0] and bell.poll(_NAP):
                os.read(task["go"], 4096)
            asleep[w] = False
            if os.getppid() != task["parent"]:
                return
            continue
        fence()
        forget()
        started, lost = time.perf_counter(), fresh and begun[0] > 0
        if fresh and not lost:
            player.reset()
        fresh = False
        number = int(done[0] // steps)
        fragment, before = fragments[number % slots], fragments[(number - 1) % slots]
        resumed = begun[0] > number
        if not resumed and lost:
            for name in ("observation", "action_mask"):
                fragment[name][0] = before[name][-1]
        elif not resumed:
            player.show(fragment, 0)
        while True:
            chosen = int(granted[0] if slots == 1 else newest[0])
            if not resumed:
                version[0, number % slots] = chosen
                fence()
                begun[0] = number + 1
            fence()
            values = shared["policy"][chosen % 2].copy()
            fence()
            if stamp[chosen % 2] == chosen and (slots == 1 or newest[0] == chosen):
                break
        player.draw(int(shared["clock"][0]) + number * steps, steps, values)
        for t in range(int(done[0] % steps), steps):
            player.step(fragment, t, lost)
            lost = False
            if t == steps - 1:
                shared["delivered"][number % slots, mine] = shared["episodes"][mine]
            fence()
            done[0] += 1
            if closing[0]:
                return
        fence()
        if asleep[-1]:
            os.write(task["done"], ONE)
        shared["busy"][w] += time.perf_counter() - started


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # signals to the process group also reach the parent, which decides
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # writes the traceback of a hanging worker
    arguments = json.loads(sys.argv[1])
    end_with_parent(arguments["life"])
    exact_timers()
    if os.getppid() != arguments["parent"]:
        sys.exit(4)  # the parent is already gone
    try:
        main(arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(3)
