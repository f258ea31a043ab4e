"""The list of runs: what a folder contains, and the state of each run, from the heads and tails of its files.

A run is *running* while a process holds its lock, which ends with the process however that ends, and which a copy on
another machine does not have. Otherwise it is *finished* (its budget is spent, or the search has a summary), *stopped*
(its last update has a checkpoint) or *failed* (the process ended without writing one); *damaged* if it cannot be read.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from cavalcade.runs.files import CHECKPOINTS, CONFIG, HELDOUT, LOCK, METRICS, SEARCH, SUMMARY
from cavalcade.watch import lines, security
from cavalcade.watch.reading import Plain, read_trainings, read_yaml

DEEPEST = 4  # levels of folders below the watched one
MOST_FOLDERS = 20_000
_RECENT = 20  # rows that the score is averaged over


def find(root: Path) -> Iterator[Path]:
    """Run directories below a folder, itself included; links are not followed."""
    left, seen = [(root, 0)], 0
    while left and seen < MOST_FOLDERS:
        folder, depth = left.pop()
        seen += 1
        try:
            with os.scandir(folder) as entries:
                inside = [e for e in entries if e.name == CONFIG or _is_folder(e)]
        except OSError:
            continue
        if any(e.name == CONFIG for e in inside):
            yield folder
        elif depth < DEEPEST:
            left += [(Path(e.path), depth + 1) for e in inside if not e.name.startswith(".")]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


class Listing:
    """Summaries of the runs below a folder; files are read again only when they have changed."""

    def __init__(self, root: Path):
        self.root = root
        self._kept: dict[Path, tuple[Any, Plain]] = {}

    def __call__(self) -> list[Plain]:
        """All runs, those that changed last first."""
        return self.of(self.paths())

    def paths(self) -> list[Path]:
        """Directories of all runs, those that changed last first; what is known of others is forgotten."""
        found = {path: max(_version(path, CONFIG)[0], _version(path, METRICS)[0]) for path in find(self.root)}
        self._kept = {path: kept for path, kept in self._kept.items() if path in found}
        return sorted(found, key=lambda path: (-found[path], path))

    def of(self, paths: Iterable[Path]) -> list[Plain]:
        """Summaries of some runs."""
        return [self.summary(path) for path in paths]

    def summary(self, path: Path) -> Plain:
        """Summary of one run."""
        version = tuple(_version(path, name) for name in (CONFIG, METRICS, SUMMARY, SEARCH, CHECKPOINTS, HELDOUT))
        kept = self._kept.get(path)
        if kept and kept[0] == version:
            found = kept[1]
        else:
            found = summarise(self.root, path)
            self._kept[path] = (version, found)
        if found["state"] in ("finished", "damaged") or not is_locked(path):
            return found
        return found | {"state": "running", "note": ""}


def _version(folder: Path, name: str) -> tuple[int, int]:
    try:
        stat = os.stat(f"{folder}/{name}")
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


def is_locked(path: Path) -> bool:
    """Whether a process is working on a run: it holds the lock. Tested without waiting and without a trace."""
    try:
        handle = os.open(f"{path}/{LOCK}", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def summarise(root: Path, path: Path) -> Plain:
    """Summary of a run without regard to its lock."""
    relative = path.relative_to(root).as_posix()
    found: Plain = {
        "path": relative, "name": root.name if relative == "." else relative, "kind": "training", "target": "",
        "state": "failed", "note": "", "update": 0, "updates": None, "steps": 0, "episodes": None, "speed": None,
        "score": None, "spread": None, "policies": 1, "seconds": None, "changed": 0.0,
    }  # fmt: skip
    with suppress(OSError):
        found["changed"] = max((path / name).stat().st_mtime for name in (CONFIG, METRICS) if (path / name).exists())
    config = read_yaml(path / CONFIG)
    if config is None:
        return found | {"state": "damaged", "note": f"{CONFIG} cannot be read"}
    search = "searcher" in config
    found |= {"kind": "search" if search else "training", "target": str(config.get("target", ""))}
    rows: list[Plain] = []
    if security.is_file(path / METRICS):
        with suppress(OSError):
            rows, _ = lines.tail(path / METRICS, _RECENT)
    if rows:
        found |= _latest(rows, config, search)
    found |= _search_score(path) if search else {}
    return found | _ended(path, found)


def _latest(rows: list[Plain], config: Plain, search: bool) -> Plain:
    """What the last rows of the metrics say."""
    first, last = rows[0], rows[-1]
    found: Plain = {name: _number(last.get(name)) for name in ("update", "steps", "episodes", "seconds")}
    steps, seconds = (_number(last.get(n)) - _number(first.get(n)) for n in ("steps", "seconds"))
    if seconds > 0:
        found["speed"] = steps / seconds
    elif found["seconds"]:
        found["speed"] = found["steps"] / found["seconds"]
    if not search:
        returns = [row["return"] for row in rows if isinstance(row.get("return"), list)]
        policies = max(map(len, returns), default=1)
        means = []
        for p in range(policies):
            known = [_number(r[p]) for r in returns if p < len(r) and isinstance(r[p], int | float)]
            means += [sum(known) / len(known)] if known else []
        found["policies"] = policies
        if means:
            found |= {"score": sum(means) / len(means), "spread": [min(means), max(means)]}
    found["updates"] = planned(config, found, search)
    return found


def planned(config: Plain, latest: Plain, search: bool) -> int | None:
    """Updates that fit into the budget; None if the configuration has none that is known here."""
    if not latest["update"] or not latest["steps"]:
        return None
    task = config.get("task")
    horizon = task.get("horizon") if isinstance(task, dict) else None
    policies = 1 if search else latest.get("policies", 1)
    budget: Any = config.get("total_episodes") if search else config.get("episodes")
    budget = budget * horizon if isinstance(budget, int) and isinstance(horizon, int) else config.get("steps")
    if not isinstance(budget, int):
        return None
    return int(budget * policies // (latest["steps"] / latest["update"]))


def _search_score(path: Path) -> Plain:
    """The best score of a search so far, and how many trainings it has finished."""
    rows = read_trainings(path)
    scores = [row["score"] for row in rows if row["kind"] == "order" and isinstance(row["score"], int | float)]
    return {"trainings": len(rows), "score": max(scores, default=None), "updates": None}


def _ended(path: Path, found: Plain) -> Plain:
    """State of a run that no process is working on."""
    if found["kind"] == "search":
        if (path / SUMMARY).exists():
            return {"state": "finished"}
    elif found["updates"] and found["update"] >= found["updates"]:
        return {"state": "finished"}
    saved = newest_checkpoint(path)
    if saved is not None and saved >= found["update"]:
        return {"state": "stopped", "note": f"stopped at update {saved:,}"}
    since = f"checkpoint {saved:,}" if saved is not None else "its start"
    return {"note": f"ended without a checkpoint; resumes from {since}"}


def newest_checkpoint(path: Path) -> int | None:
    """Update of the newest checkpoint."""
    try:
        return max((int(name) for name in os.listdir(path / CHECKPOINTS) if name.isdecimal()), default=None)
    except OSError:
        return None


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value == value else 0
