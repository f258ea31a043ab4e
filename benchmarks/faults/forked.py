"""Each case in a process of its own, forked from this one, which has imported everything and loaded its kernels.

A fork takes milliseconds where a fresh interpreter takes seconds. Kernels run on Numba's own threads, which a forked
process starts anew; those of OpenMP do not survive a fork. Nothing that a case breaks outlives it: its process, those
that it started and their memory are gone, and what hangs is killed.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cavalcade.core.jit import config

MEMORY = 8 << 30  # bytes of address space that a case may take beyond what it begins with
PATIENCE = 6  # so many times as long as it may compute, a case may wait: other programs have the cores, too
_KILLED = -signal.SIGKILL


class HangError(BaseException):
    """Something takes too long; nobody catches it."""


class Ended(NamedTuple):
    """A process that has ended: what its function returned, or how else it ended."""

    value: Any = None
    wrong: str = ""
    status: int = 0  # as of `os.waitstatus_to_exitcode`


def prepare() -> None:
    """Makes this process one that others can be forked from; to be called before the first kernel runs."""
    config.THREADING_LAYER = "workqueue"
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def forked(function: Callable[..., Any], *args: Any, seconds: int) -> Ended:
    """Calls a function, which returns plain data, in a process of its own; it may compute for so many seconds."""
    if threading.active_count() > 1:
        raise AssertionError(f"other threads would not survive a fork: {threading.enumerate()}")
    answer = os.memfd_create("answer")
    gc.freeze()  # so that collections in the new process leave these pages shared
    process = os.fork()
    if process == 0:
        _child(answer, function, args, seconds)
    try:
        status = _waited_for(process, PATIENCE * seconds + 10)
        with os.fdopen(answer, "rb") as file:
            file.seek(0)
            text = file.read()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what it has started and left behind
    if status is None:
        return Ended(wrong="hangs, and does not answer to signals", status=_KILLED)
    if not text:
        return Ended(wrong=f"ended with {status}", status=status)
    value, wrong = json.loads(text)
    return Ended(value, wrong, status)


def _waited_for(process: int, seconds: float) -> int | None:
    """Exit status of a process; None if it had to be killed."""
    handle = os.pidfd_open(process)
    try:
        late = not select.select([handle], [], [], seconds)[0]
    except BaseException:  # interrupted
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        raise
    finally:
        os.close(handle)
    if late:
        os.kill(process, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return None if late else status


def _child(answer: int, function: Callable[..., Any], args: tuple, seconds: int) -> None:
    """The new process; does not return."""
    os.setsid()
    with contextlib.suppress(OSError, ValueError):
        most = _virtual_bytes() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        with limited(seconds):
            found = [function(*args), ""]
    except BaseException as error:
        found = [None, f"traceback {type(error).__name__}: {error}"]
    os.write(answer, json.dumps(found).encode())
    os._exit(0)


def _virtual_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises `HangError` in a block that computes for longer, or that waits for `PATIENCE` times as long."""

    def late(number, _frame):
        raise HangError(f"{'waits' if number == signal.SIGALRM else 'computes'} for more than {seconds} s")

    before = [(number, signal.signal(number, late)) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before:
            signal.signal(number, handler)


def processor_seconds() -> float:
    """Processor time of this process and of those that it has waited for."""
    here, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return here.ru_utime + here.ru_stime + others.ru_utime + others.ru_stime
