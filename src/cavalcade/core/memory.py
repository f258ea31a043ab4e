"""Memory that this process may still take: that of the machine, or of its container where that is less."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

_GROUPS = Path("/sys/fs/cgroup")
_MINE = Path("/proc/self/cgroup")


class Memory(NamedTuple):
    """Bytes in all, and those that are free or can be freed."""

    total: int
    available: int


def memory(groups: Path = _GROUPS, mine: Path = _MINE) -> Memory:
    """The tightest limit of the machine and of the control groups that this process is in (cgroup v1 and v2)."""
    machine = psutil.virtual_memory()
    found = [Memory(machine.total, machine.available), *_limits(groups, mine)]
    return Memory(min(row.total for row in found), min(row.available for row in found))


def _limits(groups: Path, mine: Path) -> Iterator[Memory]:
    for line in _text(mine).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = groups / controllers
        most, used, cache = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        here = root / path.lstrip("/")
        for folder in (here, *here.parents):  # a group's limit holds for those below it
            if (limit := _text(folder / most).strip()).isdecimal():
                statistics = dict(row.split() for row in _text(folder / "memory.stat").splitlines())
                taken = int(_text(folder / used) or 0) - int(statistics.get(cache, 0))
                yield Memory(int(limit), max(0, int(limit) - taken))
            if folder == root:
                break


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
