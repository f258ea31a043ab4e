"""What was tried, how often, and what went wrong."""

import json
import time
from collections import Counter
from dataclasses import dataclass, field

_SHOWN = 12  # faults printed of each kind
_NONE = ("faults", "left out", "tried", "not tried")  # a row without these columns has none of them
_MOST = "most "  # columns whose names begin so are maxima, all others are sums


@dataclass
class Tally:
    """Counts by row and column, and the faults of each row."""

    title: str
    counts: dict[str, Counter] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    until: float = float("inf")  # by `time.monotonic`

    def late(self, row: str) -> bool:
        """Whether time is over; counts what is left out then."""
        if time.monotonic() < self.until:
            return False
        self.add(row, "left out")
        return True

    def add(self, row: str, column: str, count: int = 1) -> None:
        self.counts.setdefault(row, Counter())[column] += count

    def most(self, row: str, column: str, value: int) -> None:
        """Raises a maximum."""
        counts = self.counts.setdefault(row, Counter())
        counts[_MOST + column] = max(counts[_MOST + column], value)

    def fail(self, row: str, what: str) -> None:
        self.add(row, "faults")
        self.faults.setdefault(row, []).append(" ".join(what.split()))
        if len(self.faults[row]) <= _SHOWN:
            print(f"  fault in {row}: {self.faults[row][-1][:400]}", flush=True)

    def merge(self, text: str) -> None:
        """Adds what another process found, see `text`."""
        plain = json.loads(text)
        for row, counts in plain["counts"].items():
            for column, count in counts.items():
                if column.startswith(_MOST):
                    self.most(row, column.removeprefix(_MOST), count)
                else:
                    self.add(row, column, count)
        for row, faults in plain["faults"].items():
            self.faults.setdefault(row, []).extend(faults)

    def text(self, **more: object) -> str:
        return json.dumps({**more, "counts": self.counts, "faults": self.faults})

    @property
    def lost(self) -> int:
        return sum(map(len, self.faults.values()))

    def rows(self) -> list[list[str]]:
        """The table: its head, a row for each kind, and their sums."""
        columns = list(dict.fromkeys(name for counts in self.counts.values() for name in counts if name != "faults"))
        columns.append("faults")
        rows = [[row, *(_cell(counts, name) for name in columns)] for row, counts in self.counts.items()]
        together = [
            (max if name.startswith(_MOST) else sum)(counts[name] for counts in self.counts.values())
            for name in columns
        ]
        total = [f"{count:,}" for count in together]
        return [[self.title, *columns], *rows, ["all", *total]]

    def __str__(self) -> str:
        head, *rows = self.rows()
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _cell(counts: Counter, column: str) -> str:
    """A count; a dash where a row does not count that."""
    return f"{counts[column]:,}" if column in counts or column in _NONE else "–"
