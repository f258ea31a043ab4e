"""Crashes: every operation of a short run is its last, by kill -9 or power cut; it goes on and must end equal."""

import contextlib
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults.commands import COMMANDS, TEMPORARY, Command, fresh, left_by, run, status_of
from benchmarks.faults.disk import KEPT, Disk, Op, after_kill, after_power_loss
from benchmarks.faults.journal import recording
from benchmarks.faults.table import Tally

from cavalcade.runs.checkpoint import ENVIRONMENT, OPTIMIZER, POLICY
from cavalcade.runs.files import CHECKPOINTS, CONFIG, STATE

CHECKPOINT_FILES = (POLICY, OPTIMIZER, ENVIRONMENT, STATE)
SECONDS = 120  # after which a command hangs


class Point(NamedTuple):
    """Where a command ends: after so many operations, by a kill (perhaps within the last one) or a power cut."""

    done: int
    how: str = "kill"  # or torn, or one of KEPT

    def disk(self, start: Disk, ops: Sequence[Op], rng: random.Random) -> Disk:
        before = ops[: self.done]
        if self.how in KEPT:
            return after_power_loss(start, before, self.how, rng)
        return after_kill(start, before, len(before[-1].data) // 2 if self.how == "torn" else None)


def points(ops: Sequence[Op]) -> Iterator[Point]:
    """All points of a journal; writes are also torn."""
    for done in range(len(ops) + 1):
        yield Point(done)
        if done and ops[done - 1].kind == "write" and len(ops[done - 1].data) > 1:
            yield Point(done, "torn")
        for how in KEPT:
            yield Point(done, how)


class Undisturbed:
    """A command that was run once, recorded: its operations, and what it left."""

    def __init__(self, command: Command, folder: Path):
        self.command, self.prepared = command, fresh(folder / "prepared")
        command.make(self.prepared)
        (self.prepared / command.place).mkdir(exist_ok=True)
        whole = folder / "whole"
        shutil.rmtree(whole, ignore_errors=True)
        shutil.copytree(self.prepared, whole)
        with recording(whole / command.place) as journal:
            run(command.first(whole))
        if missed := journal.complete():
            raise AssertionError(f"the journal of {command.name} misses changes of {', '.join(missed)}")
        self.start, self.ops, self.left = (
            journal.start,
            journal.ops,
            left_by(whole / command.place, exact=command.exact),
        )

    def after(self, disk: Disk, folder: Path) -> Path:
        """A folder as a crash left it."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.prepared, folder)
        shutil.rmtree(folder / self.command.place)
        disk.write_to(folder / self.command.place)
        return folder

    def broken(self, disk: Disk, ops: Sequence[Op]) -> str:
        """What a crash has broken before anything goes on: a checkpoint that was promised, or a file in part."""
        if (update := promised(ops)) and not (
            CONFIG in disk.entries and any(name > update and name.endswith(STATE) for name in disk.entries)
        ):
            return f"{update} was written and is lost"
        if self.command.atomic:
            for name, file in disk.entries.items():
                here = disk.contents.get(file, b"")
                if name in self.left and not here.endswith(self.left[name][-8:]):
                    return f"{name} is there in part: {len(here)} bytes"
        return ""

    def goes_on(self, folder: Path) -> str:
        """Runs the command again: empty if it ends as the undisturbed one, else what is wrong."""
        with limited(SECONDS):
            try:
                status, errors = status_of(self.command.again(folder))
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return f"traceback {type(error).__name__}: {error}"
        if status:
            return f"refused with {status}: {errors.strip()}"
        now = without_older(left_by(folder / self.command.place, exact=self.command.exact), self.left)
        if stay := [name for name in now if any(part in name for part in TEMPORARY)]:
            return f"temporary files stay: {', '.join(stay)}"
        differ = sorted(name for name in now.keys() | self.left.keys() if now.get(name) != self.left.get(name))
        return f"differs: {', '.join(differ)}" if differ else ""


class HangError(BaseException):
    """Something takes too long; nobody catches it."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raises `HangError` in a block that computes for longer, or that waits for six times as long."""

    def late(number, _frame):
        raise HangError(f"{'waits' if number == signal.SIGALRM else 'computes'} for more than {seconds} s")

    before = [(number, signal.signal(number, late)) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_REAL, 6 * seconds)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before:
            signal.signal(number, handler)


def promised(ops: Sequence[Op]) -> str:
    """The folder of the newest checkpoint that was flushed with its name, or nothing."""
    newest = found = ""
    for op in ops:
        if op.kind == "rename" and op.to.startswith(f"{CHECKPOINTS}/") and op.to.rpartition("/")[2].isdecimal():
            newest = op.to
        elif op.kind == "sync" and op.path == "":  # the last thing that writing a checkpoint flushes
            found = newest
    return found


def without_older(now: dict[str, bytes], left: dict[str, bytes]) -> dict[str, bytes]:
    """Leaves out whole checkpoints that are not among those of the undisturbed run: they were to be removed next."""
    folders = {name.rpartition("/")[0] for name in now if name.startswith(f"{CHECKPOINTS}/")}
    older = {
        folder
        for folder in folders - {name.rpartition("/")[0] for name in left}
        if folder.rpartition("/")[2].isdecimal() and all(f"{folder}/{name}" in now for name in CHECKPOINT_FILES)
    }
    return {name: content for name, content in now.items() if name.rpartition("/")[0] not in older}


def every(name: str, tally: Tally, *, seed: int, count: int = 0, share: tuple[int, int] = (0, 1)) -> None:
    """Crashes a command at every operation, or at `count` of them; share: which of how many parts to do."""
    rng = random.Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        whole = Undisturbed(COMMANDS[name], folder)
        found = list(points(whole.ops))
        tally.add(name, "operations", len(whole.ops) if share[0] == 0 else 0)
        chosen = sorted(rng.sample(found, count)) if 0 < count < len(found) else found
        seen: dict[tuple, str] = {}
        for point in chosen[share[0] :: share[1]]:
            if tally.late(name):
                continue
            disk = point.disk(whole.start, whole.ops, rng)
            key = tuple(sorted((path, disk.contents.get(file, b"")) for path, file in disk.entries.items()))
            if key not in seen:  # another point left the same
                seen[key] = whole.broken(disk, whole.ops[: point.done])
                seen[key] = seen[key] or whole.goes_on(whole.after(disk, folder / "crashed"))
            _count(tally, name, point, whole.ops, seen[key])


def chains(names: Sequence[str], tally: Tally, *, seed: int, count: int) -> None:
    """Crashes drawn by a seed, up to three in a row: also while a run is being resumed."""
    with tempfile.TemporaryDirectory() as place:
        wholes = {name: Undisturbed(COMMANDS[name], Path(place) / name.replace(" ", "-")) for name in names}
        for number in range(count):
            rng = random.Random(f"{seed} chain {number}")
            name = rng.choice(list(names))
            if tally.late(f"{name}, chains"):
                continue
            whole, folder = wholes[name], Path(place) / "crashed"
            point = rng.choice(list(points(whole.ops)))
            disk = point.disk(whole.start, whole.ops, rng)
            for _ in range(rng.randint(0, 2)):
                whole.after(disk, folder)
                with recording(folder / whole.command.place) as journal:
                    status_of(whole.command.again(folder))
                point = rng.choice(list(points(journal.ops)))
                disk = point.disk(journal.start, journal.ops, rng)
            wrong = whole.goes_on(whole.after(disk, folder))
            _count(tally, f"{name}, chains", point, whole.ops, wrong and f"chain {number} of seed {seed}: {wrong}")


def _count(tally: Tally, name: str, point: Point, ops: Sequence[Op], wrong: str) -> None:
    tally.add(name, "power cuts" if point.how in KEPT else "kills")
    if not wrong:
        tally.add(name, "equal")
    else:
        last = ops[point.done - 1] if 0 < point.done <= len(ops) else "its start"
        tally.fail(name, f"{point.how} after operation {point.done} ({last}): {wrong}")


def try_all(tally: Tally, options, share: tuple[int, int]) -> None:
    """Every operation of every command, or `count` of each; and as many chains drawn by the seed."""
    names = options.only or list(COMMANDS)
    for name in names:
        print(f"crashes of {name} ...", flush=True)
        every(name, tally, seed=options.seed, count=options.count, share=share)
    quick = [name for name in names if COMMANDS[name].quick]
    number = (options.count or 2000) // share[1]
    print(f"{number} chains of up to three crashes ...", flush=True)
    chains(quick, tally, seed=options.seed * share[1] + share[0], count=number)
