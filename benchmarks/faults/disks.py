"""Full disks: no space from each operation of a command on; then there is room again."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.faults.commands import COMMANDS, UndisturbedError, status_of
from benchmarks.faults.crashes import Undisturbed
from benchmarks.faults.forked import forked
from benchmarks.faults.journal import NEED_ROOM, full_disk, recording
from benchmarks.faults.table import Tally

SECONDS = 60


def try_all(tally: Tally, options: Any, share: tuple[int, int]) -> None:
    """Every operation that needs room of every command, or about `count` of each."""
    for name in options.only or COMMANDS:
        print(f"full disks for {name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                whole = Undisturbed(COMMANDS[name], Path(folder))
            except UndisturbedError as error:
                tally.fail(name, f"cannot be tried here: {error}")
                continue
            places = [at for at, op in enumerate(whole.ops) if op.kind in NEED_ROOM]
            step = max(1, len(places) // options.count) if options.count else 1
            for at in places[::step][share[0] :: share[1]]:
                if tally.late(name):
                    continue
                tally.add(name, "tried")
                if wrong := full_from(whole, Path(folder) / "full", at):
                    tally.fail(name, f"operation {at} ({whole.ops[at]}): {wrong}")


def full_from(whole: Undisturbed, folder: Path, at: int) -> str:
    """No space from operation `at` on: the command says so in one line, and later goes on; else what is wrong."""
    place = whole.after(whole.start, folder)

    def first() -> tuple[int, str]:
        with recording(place / whole.command.place, full_disk(at)):
            return status_of(whole.command.first(place))

    ended = forked(first, seconds=SECONDS)
    status, errors = ended.value or (0, "")
    if ended.wrong or status not in (0, 2) or (status == 2 and len(errors.strip().splitlines()) != 1):
        return ended.wrong or f"exit {status}: {errors}"
    ended = forked(whole.goes_on, place, seconds=SECONDS)
    return ended.wrong or ended.value
