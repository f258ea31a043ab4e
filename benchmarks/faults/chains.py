"""Crashes at points that a seed draws, up to three in a row: also while a run is being resumed."""

import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults.commands import COMMANDS, status_of
from benchmarks.faults.crashes import SECONDS, Point, Undisturbed, points
from benchmarks.faults.disk import KEPT, Op
from benchmarks.faults.forked import forked
from benchmarks.faults.journal import recording
from benchmarks.faults.table import Tally

CRASHED = 137  # exit status of a process that ended where it was told to
WAYS = ("kill", "torn", *KEPT)


def chains(names: Sequence[str], tally: Tally, *, seed: int, count: int) -> None:
    """Crashes drawn by a seed, up to three in a row: also while a run is being resumed."""
    with tempfile.TemporaryDirectory() as place:
        wholes = {name: Undisturbed(COMMANDS[name], Path(place) / name.replace(" ", "-")) for name in names}
        for number in range(count):
            rng = random.Random(f"{seed} chain {number}")
            name = rng.choice(list(names))
            row = f"{name}, by seed"
            if tally.late(row):
                continue
            wrong, crashed = _chain(wholes[name], Path(place) / "crashed", rng)
            tally.add(row, "crashes", crashed)
            tally.add(row, "resumed")
            if wrong:
                tally.fail(row, f"chain {number} of seed {seed}: {wrong}")
            else:
                tally.add(row, "equal")


def _chain(whole: Undisturbed, folder: Path, rng: random.Random) -> tuple[str, int]:
    """One to three crashes in a row: what is wrong afterwards, and how many there were.

    The first is set up from the journal; the processes of later ones really end.
    """
    point = rng.choice(list(points(whole.ops)))
    disk = point.disk(whole.start, whole.ops, rng)
    if wrong := whole.broken(disk, whole.ops[: point.done]):
        return f"{point}: {wrong}", 1
    whole.after(disk, folder)
    story = [point]
    for _ in range(rng.randint(0, 2)):
        point = Point(rng.randrange(len(whole.ops)), rng.choice(WAYS))
        ended = forked(crash, whole, folder, point, rng.random(), seconds=SECONDS)
        if ended.status == CRASHED:
            story.append(point)
        elif ended.wrong:
            return f"{story}, then {point}: {ended.wrong}", len(story)
    ended = forked(whole.goes_on, folder, seconds=SECONDS)
    wrong = ended.wrong or ended.value
    return wrong and f"{story}: {wrong}", len(story)


def crash(whole: Undisturbed, folder: Path, point: Point, seed: float) -> None:
    """Runs a command again up to an operation, and ends this process there; the disk is then as the point says."""
    place = folder / whole.command.place

    def fault(number: int, op: Op) -> None:
        if number < point.done:
            return
        if point.how in KEPT or (point.how == "torn" and op.kind == "write"):
            ops = [*journal.ops, op] if point.how == "torn" else journal.ops
            disk = Point(len(ops), point.how).disk(journal.start, ops, random.Random(seed))
            journal.over()
            shutil.rmtree(place)
            disk.write_to(place)
        os._exit(CRASHED)

    with recording(place, fault) as journal:
        status_of(whole.command.again(folder))


def try_all(tally: Tally, options: Any, share: tuple[int, int]) -> None:
    """As many chains as `count` says, 2,000 by default, of all commands or of some."""
    count = (options.count or 2000) // share[1]
    print(f"{count} chains of up to three crashes ...", flush=True)
    chains(options.only or list(COMMANDS), tally, seed=options.seed * share[1] + share[0], count=count)
