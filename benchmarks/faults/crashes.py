"""Crashes: every operation of a short run is its last, by kill -9 or power cut; it goes on and must end equal."""

import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.faults.commands import COMMANDS, TEMPORARY, Command, UndisturbedError, fresh, left_by, run, status_of
from benchmarks.faults.disk import KEPT, Disk, Op, after_kill, after_power_loss
from benchmarks.faults.forked import forked
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
        status, errors = status_of(self.command.again(folder))
        if status:
            return f"refused with {status}: {errors.strip()}"
        now = without_older(left_by(folder / self.command.place, exact=self.command.exact), self.left)
        if stay := [name for name in now if any(part in name for part in TEMPORARY)]:
            return f"temporary files stay: {', '.join(stay)}"
        differ = sorted(name for name in now.keys() | self.left.keys() if now.get(name) != self.left.get(name))
        return f"differs: {', '.join(differ)}" if differ else ""


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
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        whole = Undisturbed(COMMANDS[name], folder)
        found = list(points(whole.ops))
        tally.add(name, "operations", len(whole.ops) if share[0] == 0 else 0)
        chosen = sorted(random.Random(f"{seed} {name}").sample(found, count)) if 0 < count < len(found) else found
        seen: dict[tuple, str] = {}
        for point in chosen[share[0] :: share[1]]:
            if tally.late(name):
                continue
            disk = point.disk(whole.start, whole.ops, random.Random(f"{seed} {name} {point}"))
            key = tuple(sorted((path, disk.contents.get(file, b"")) for path, file in disk.entries.items()))
            if key not in seen:  # else another point left the same
                seen[key] = whole.broken(disk, whole.ops[: point.done]) or _goes_on(whole, disk, folder / "crashed")
                tally.add(name, "resumed")
            _count(tally, name, point, whole.ops, seen[key])


def _goes_on(whole: Undisturbed, disk: Disk, folder: Path) -> str:
    """Sets a folder up as a crash left it and runs the command again, in a process of its own."""
    whole.after(disk, folder)
    ended = forked(whole.goes_on, folder, seconds=SECONDS)
    return ended.wrong or ended.value


def _count(tally: Tally, name: str, point: Point, ops: Sequence[Op], wrong: str) -> None:
    tally.add(name, "crashes")
    if not wrong:
        tally.add(name, "equal")
    else:
        last = ops[point.done - 1] if 0 < point.done <= len(ops) else "its start"
        tally.fail(name, f"{point.how} after operation {point.done} ({last}): {wrong}")


def try_all(tally: Tally, options: Any, share: tuple[int, int]) -> None:
    """Every operation of every command, or `count` of each."""
    for name in options.only or COMMANDS:
        print(f"crashes of {name} ...", flush=True)
        try:
            every(name, tally, seed=options.seed, count=options.count, share=share)
        except UndisturbedError as error:
            tally.fail(name, f"cannot be tried here: {error}")
