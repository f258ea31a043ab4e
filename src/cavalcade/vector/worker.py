"""A worker process: waits to be woken, does what is asked of its chunks of rows, says that it is done.

Run as a file by any interpreter from Python 3.8 on that has numpy, so that old environments can be hosted as well; it
imports nothing of Cavalcade unless the maker of its rows is a module of it. The argument is JSON. It inherits `life`,
a pipe whose other end only the parent holds: when that closes, the kernel ends the worker, whatever it is doing. Where
rows lie in shared memory it inherits that too, with `go` and `done` for waking; else messages pass through a socket.
"""

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
ONE = (1).to_bytes(8, sys.byteorder)  # wakes: adds to an eventfd, or is a message in a pipe
ANSWER = ("observation", "final_observation", "reward", "terminated", "truncated", "action_mask", "figures",
          "true_state", "episodes")  # fmt: skip
_MOST_SAID = 1 << 20  # bytes of standard error kept
_NAP = 100  # milliseconds after which a sleeping worker looks by itself
_LOCK = threading.Lock()
yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


def fence():
    """What was written before is seen by other processes before what is written after; and so for reading.

    Processors may reorder plain reads and writes; those around a lock they may not.
    """
    with _LOCK:
        pass


def main(task):
    """Serves until it is told to end, or the parent is gone."""
    sys.path[:1] = task["path"] or []  # instead of the folder of this file
    if "slab" in task:
        buffer = mmap.mmap(task["slab"], task["size"])
    else:
        buffer = bytearray(task["size"])
    fields = {name: np.ndarray(shape, kind, buffer, at) for name, shape, kind, at in task["places"]}
    make = load(task["maker"]).make_rows
    rows = [make(fields, start, stop, task["options"]) for start, stop in task["chunks"]]
    if "slab" in task:
        serve_shared(fields, rows, task)
    else:
        serve_pipe(fields, rows, task)
    for part in rows:
        part.close()


def load(maker):
    """The module that serves rows, by name or by file."""
    if not maker.endswith(".py"):
        return importlib.import_module(maker)
    content = runpy.run_path(maker)
    return types.SimpleNamespace(**content)


def perform(part, command):
    """What was asked of a chunk."""
    if command == STEP:
        part.step()
    else:
        part.reset()


def forget():
    """Cuts off what was said to standard error, if that is a lot."""
    if os.fstat(2).st_size > _MOST_SAID:
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)


def serve_shared(fields, rows, task):
    """Looks for work in shared memory; after some time without any it sleeps until it is woken."""
    w, go, done = task["worker"], task["go"], task["done"]
    asked, finished, command = (fields[name][w].data for name in ("asked", "finished", "command"))
    asleep, busy, spin, clock = fields["asleep"], fields["busy"], task["spin"], time.perf_counter
    bell = select.poll()
    bell.register(go, select.POLLIN)
    fields["ready"][w] = True
    idle_since, patience = clock(), spin
    while True:
        if asked == finished:
            if clock() - idle_since < patience:
                yield_core()
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
        patience = spin if begun - idle_since < 2 * spin else 0  # no use to stay awake if work is long in coming
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
    """Takes pickled messages from its parent and answers with pickled rows."""
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


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # whatever reaches the whole group reaches the parent, which decides
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # says where it hangs
    arguments = json.loads(sys.argv[1])
    fcntl.fcntl(arguments["life"], fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(arguments["life"], fcntl.F_SETFL, os.O_ASYNC)  # SIGIO ends the process once the other end is closed
    if os.getppid() != arguments["parent"]:
        sys.exit(4)  # it was closed before
    try:
        main(arguments)
    except Exception:
        traceback.print_exc()
        sys.exit(3)
