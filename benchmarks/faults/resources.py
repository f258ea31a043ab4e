"""Scarce resources: little memory, few descriptors, read-only folders, signals, terminals that vanish."""

import contextlib
import fcntl
import itertools
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from termios import TIOCSCTTY
from typing import Any

from benchmarks.faults.commands import CAGE2, PPO, left_by, run, status_of
from benchmarks.faults.forked import HangError
from benchmarks.faults.table import Tally

LONG = [*CAGE2, "--episodes", "4000", "--checkpoint-every", "50"]
NOT_TRIED = "not tried"  # what needs rights that this process has not
_SECONDS = 300
HOSTED = (
    "train",
    "gym:CartPole-v1",
    *PPO,
    "--steps",
    "200",
    "--minibatches",
    "1",
    "--workers",
    "2",
    "--run",
    "FOLDER/run",
)
RANKS = (
    "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "--", "cavalcade", *CAGE2,
    "--engine", "torch", "--run", "FOLDER/run",
)  # fmt: skip
SMALL_SHM = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
READ_ONLY = "mkdir FOLDER/disk && mount -t tmpfs -o ro tmpfs FOLDER/disk"
SMALL_DISK = "mkdir FOLDER/disk && mount -t tmpfs -o size=64k tmpfs FOLDER/disk"


class Child:
    """A training in a process of its own, until it has a checkpoint."""

    def __init__(self, folder: Path, **options: Any):
        self.path = folder / "run"
        command = [sys.executable, "-m", "cavalcade", *LONG, "--run", str(self.path)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)

    def begun(self) -> "Child":
        end = time.monotonic() + _SECONDS
        while not any((self.path / "checkpoints").glob("[0-9]*")):
            if self.process.poll() is not None or time.monotonic() > end:
                raise HangError(f"it ended with {self.process.poll()}: {self.process.communicate()[1]}")
            time.sleep(0.02)
        return self

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=_SECONDS)
        return self.process.returncode, errors

    def resumes_as(self, whole: dict[str, bytes]) -> str:
        """Resumes the run in this process: empty if it ends as the undisturbed one."""
        status, errors = status_of(["train", "--resume", str(self.path), "--quiet"])
        if status:
            return f"refused: {errors}"
        now = left_by(self.path)
        differ = sorted(name for name in now.keys() | whole.keys() if now.get(name) != whole.get(name))
        return f"differs: {', '.join(differ)}" if differ else ""


def in_child(limit: Callable[[], None], *more: str) -> Callable[[Path, dict[str, bytes]], str]:
    """A training under a limit: it succeeds, or says in one line why not."""

    def tried(folder: Path, whole: dict[str, bytes]) -> str:
        command = [sys.executable, "-m", "cavalcade", *LONG, *more, "--run", str(folder / "run")]
        done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, timeout=_SECONDS, check=False)
        return judged_child(done)

    return tried


def judged_child(done: subprocess.CompletedProcess) -> str:
    """Empty if a command succeeded, or said in one line why not."""
    errors = "".join(line for line in done.stderr.splitlines(True) if not line.endswith(" ...\n"))
    if done.returncode == 0 or (done.returncode == 2 and len(errors.splitlines()) == 1):
        return ""
    return f"exit {done.returncode}: {errors[-600:]}"


def read_only(folder: Path, whole: dict[str, bytes]) -> str:
    """A run directory below a file, which nobody can write to, not even root."""
    (folder / "file").write_text("")
    status, errors = status_of([*CAGE2, "--run", str(folder / "file" / "run")])
    return "" if status == 2 and len(errors.splitlines()) == 1 else f"exit {status}: {errors}"


def two_processes(folder: Path, whole: dict[str, bytes]) -> str:
    """A second process on the same run is refused; the first goes on."""
    child = Child(folder).begun()
    status, errors = status_of(["train", "--resume", str(child.path), "--quiet"])
    code, said = child.ended()
    if status != 2 or "in use by another process" not in errors:
        return f"the second one: exit {status}: {errors}"
    return f"exit {code}: {said}" if code else child.resumes_as(whole)


def stopped(folder: Path, whole: dict[str, bytes]) -> str:
    """SIGSTOP for a minute, then SIGCONT."""
    child = Child(folder).begun()
    child.process.send_signal(signal.SIGSTOP)
    time.sleep(60)
    child.process.send_signal(signal.SIGCONT)
    code, said = child.ended()
    return f"exit {code}: {said}" if code else child.resumes_as(whole)


def storm(number: signal.Signals) -> Callable[[Path, dict[str, bytes]], str]:
    """Signals in quick succession; the run resumes."""

    def tried(folder: Path, whole: dict[str, bytes]) -> str:
        child = Child(folder).begun()
        for _ in range(20):
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)
            time.sleep(0.002)
        code, said = child.ended()
        if "Traceback" in said:
            return said
        return child.resumes_as(whole) if code else f"exit {code}"

    return tried


def closed_pipe(folder: Path, whole: dict[str, bytes]) -> str:
    """Nobody reads standard output any more."""
    reading, writing = os.pipe()
    child = Child(folder, stdout=writing)
    os.close(writing)
    os.close(reading)
    _, said = child.ended()
    return said if "Traceback" in said else child.resumes_as(whole)


def terminal(folder: Path, whole: dict[str, bytes]) -> str:
    """The terminal in which a run was started is closed."""
    ours, theirs = pty.openpty()
    child = Child(folder, stdin=theirs, stdout=theirs, preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, TIOCSCTTY, 0)))
    os.close(theirs)
    child.begun()
    os.close(ours)
    _, said = child.ended()
    return said if "Traceback" in said else child.resumes_as(whole)


def mounted(what: str, *args: str) -> Callable[[Path, dict[str, bytes]], str]:
    """A command where something else is mounted: it succeeds, or says in one line why not. Needs root."""

    def tried(folder: Path, whole: dict[str, bytes]) -> str:
        command = [arg.replace("FOLDER", str(folder)) for arg in args]
        script = f'{what.replace("FOLDER", str(folder))} || exit 77; exec "$@"'
        given = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-W", "ignore", *command]
        done = subprocess.run(given, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode == 77 or "unshare" in done.stderr:
            return NOT_TRIED
        return judged_child(done)

    return tried


def clock(folder: Path, whole: dict[str, bytes]) -> str:
    """The wall clock jumps by years: nothing but dates may depend on it."""
    from unittest import mock

    jumps = itertools.cycle((1.1e9, 9e8))
    with mock.patch("time.time", side_effect=jumps):
        run([*LONG, "--run", str(folder / "run")])
    now = left_by(folder / "run")
    return "" if now == whole else "differs from a run with a steady clock"


def _limit(what: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, most))


CASES: dict[str, Callable[[Path, dict[str, bytes]], str]] = {
    "address space of 1.5 GB": in_child(_limit(resource.RLIMIT_AS, 3 << 29)),
    "address space of 4 GB": in_child(_limit(resource.RLIMIT_AS, 1 << 32)),
    "64 file descriptors": in_child(_limit(resource.RLIMIT_NOFILE, 64)),
    "16 file descriptors": in_child(_limit(resource.RLIMIT_NOFILE, 16)),
    "files of at most 4 kB": in_child(_limit(resource.RLIMIT_FSIZE, 1 << 12)),
    "a folder that cannot be written": read_only,
    "two processes on one run": two_processes,
    "SIGSTOP": stopped,
    "storm of SIGINT": storm(signal.SIGINT),
    "storm of SIGTERM": storm(signal.SIGTERM),
    "SIGHUP": storm(signal.SIGHUP),
    "closed pipe": closed_pipe,
    "closed terminal": terminal,
    "/dev/shm of 1 MB, two workers": mounted(SMALL_SHM, "-m", "cavalcade", *HOSTED, "--backend", "shared"),
    "/dev/shm of 1 MB, staleness": mounted(SMALL_SHM, "-m", "cavalcade", *HOSTED, "--staleness", "2"),
    "/dev/shm of 1 MB, two ranks": mounted(SMALL_SHM, *RANKS),
    "read-only file system": mounted(READ_ONLY, "-m", "cavalcade", *CAGE2, "--run", "FOLDER/disk/run"),
    "full file system of 64 kB": mounted(SMALL_DISK, "-m", "cavalcade", *CAGE2, "--run", "FOLDER/disk/run"),
    "a clock that jumps": clock,
}


def try_all(tally: Tally, options: Any, share: tuple[int, int]) -> None:
    """All cases once."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run([*LONG, "--run", str(folder / "whole")])
        whole = left_by(folder / "whole")
        for name, tried in list(CASES.items())[share[0] :: share[1]]:
            if options.only and name not in options.only:
                continue
            print(f"{name} ...", flush=True)
            shutil.rmtree(folder / "case", ignore_errors=True)
            (folder / "case").mkdir()
            try:
                wrong = tried(folder / "case", whole)
                tally.add(name, "not tried" if wrong == NOT_TRIED else "tried")
                if wrong and wrong != NOT_TRIED:
                    tally.fail(name, wrong)
            except (HangError, subprocess.TimeoutExpired) as error:
                tally.fail(name, f"hangs: {error}")
