"""Complete lines of a log that grows, shrinks or is damaged while it is read; memory is bounded, whatever its size.

A log is appended by a run and cut back when it is resumed. Positions are byte offsets. A last line without its end is
being written and is left for later; a line that cannot be parsed is counted and skipped.
"""

import json
from pathlib import Path
from typing import IO, Any, NamedTuple

BUDGET = 8 << 20  # bytes parsed for one answer; beyond that, evenly spaced samples of lines
_BACK = 1 << 20  # how far the last line may begin before the end of a file
_BLOCK = 4 << 10  # the least bytes of a sample


class Rows(NamedTuple):
    """Parsed rows of a log, in groups: one per sample, or one for all."""

    groups: list[list[dict[str, Any]]]
    end: int  # offset after the last complete line
    damaged: int  # lines that are not rows
    sampled: bool


def parse(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """The rows of complete lines, and the number of lines that are not rows."""
    rows, damaged = [], 0
    for line in data.splitlines():
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            damaged += 1
    return rows, damaged


def complete_end(file: IO[bytes], size: int) -> int:
    """Offset after the last complete line of the first `size` bytes; 0 if there is none."""
    start = max(0, size - _BACK)
    file.seek(start)
    found = file.read(size - start).rfind(b"\n")
    return start + found + 1 if found >= 0 else 0


def read(path: Path, start: int = 0, end: int | None = None, samples: int = 1000, budget: int = BUDGET) -> Rows:
    """Rows between two offsets: all of them, or `samples` groups of neighbouring rows if there are too many bytes."""
    with path.open("rb") as file:
        size = path.stat().st_size
        end = complete_end(file, size) if end is None else min(end, size)
        if end - start <= budget:
            file.seek(start)
            rows, damaged = parse(file.read(max(0, end - start)))
            return Rows([rows], end, damaged, False)
        return _sampled(file, start, end, samples, budget)


def _sampled(file: IO[bytes], start: int, end: int, samples: int, budget: int) -> Rows:
    file.seek(start)
    length = len(file.readline(_BACK))
    block = max(_BLOCK, 2 * length)  # holds at least one line, wherever it begins
    count = max(16, min(samples, budget // block))
    groups, damaged = [], 0
    for i in range(count):
        at = start + (end - start - block) * i // (count - 1)
        file.seek(at)
        data = file.read(block)
        first = 0 if i == 0 else data.find(b"\n") + 1
        last = data.rfind(b"\n") + 1
        rows, bad = parse(data[first:last])
        damaged += bad
        if rows:
            groups.append(rows)
    return Rows(groups, end, damaged, True)


def offset_of(path: Path, name: str, value: float) -> int:
    """Offset of the first line whose `name` is at least `value`, by bisection: the values of a log never fall."""
    with path.open("rb") as file:
        low, high = 0, complete_end(file, path.stat().st_size)
        while low < high:
            middle = (low + high) // 2
            file.seek(middle)
            begin = middle + len(file.readline()) if middle > low else low  # `low` is where a line begins
            found = None
            while begin < max(high, low + 1) and found is None:  # the first readable line from there on
                file.seek(begin)
                line = file.readline()
                rows, _ = parse(line)
                found = rows[0].get(name) if rows else None
                here, begin = begin, begin + len(line)
            if not isinstance(found, int | float):
                high = middle
            elif found < value:
                low = here + len(line)
            else:
                high = middle
        return low


def tail(path: Path, rows: int = 20, most: int = 16 << 10) -> tuple[list[dict[str, Any]], int]:
    """The last rows of a log and the offset after them: up to `rows` in `most` bytes, or one that is longer."""
    with path.open("rb") as file:
        size = path.stat().st_size
        end = complete_end(file, size)
        start = max(0, end - most)
        file.seek(start)
        data = file.read(end - start)
        if start:
            cut = data.find(b"\n", 0, len(data) - 1) + 1
            if not cut and most < 8 * _BACK:  # a row is longer than that
                return tail(path, rows, 8 * most)
            data = data[cut:]
        return parse(b"".join(data.splitlines(keepends=True)[-rows:]))[0], end
