"""Results of a campaign: a line of JSON for each part that was tried, and what they add up to."""

import json
from pathlib import Path
from typing import Any

from benchmarks.faults.table import Tally

FILE = Path(__file__).parents[2] / "docs" / "data" / "faults.jsonl"
KEY = ("part", "only", "seed", "share", "count")  # who repeats these, replaces the earlier line


def append(file: Path, tally: Tally, **what: Any) -> None:
    """Adds a line."""
    with file.open("a") as lines:
        lines.write(tally.text(**what) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file, the newest of each part."""
    found = {}
    for line in file.read_text().splitlines():
        plain = json.loads(line)
        key = json.dumps([plain[name] for name in KEY])
        found.pop(key, None)
        found[key] = plain
    return list(found.values())


def totals(lines: list[dict[str, Any]]) -> list[Tally]:
    """A table for each part."""
    found: dict[str, Tally] = {}
    for line in lines:
        found.setdefault(line["part"], Tally(line["part"])).merge(json.dumps(line))
    return list(found.values())
