"""Logs of a run as tables: a pandas DataFrame if pandas is installed, else columns by name."""

import csv
import json
from pathlib import Path
from typing import Any

from cavalcade.core.errors import RunError

_SHOWN = 10  # rows printed at either end


class Table:
    """Columns of equal length by name. `table["return"]` is a list; `len(table)` counts rows."""

    def __init__(self, columns: dict[str, list[Any]]):
        self.columns = columns

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __repr__(self) -> str:
        names, n = list(self.columns), len(self)
        picked = range(n) if n <= 2 * _SHOWN else [*range(_SHOWN), *range(n - _SHOWN, n)]
        rows = [names, *([_cell(self.columns[name][i]) for name in names] for i in picked)]
        widths = [max(len(row[c]) for row in rows) for c in range(len(names))]
        lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*lines, f"[{n} rows × {len(names)} columns]"])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def table(rows: list[dict[str, Any]]) -> Any:
    """Rows as a DataFrame if pandas is installed, else as a `Table`."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        import pandas as pd  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Table(columns)
    return pd.DataFrame(columns)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, one per update and policy; an incomplete last line is ignored."""
    found = []
    try:
        with path.open() as file:
            for line in file:
                if not line.endswith("\n"):
                    break
                found += _by_policy(json.loads(line))
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); restore it") from None
    return found


def _by_policy(row: dict[str, Any]) -> list[dict[str, Any]]:
    lists = {name: value for name, value in row.items() if isinstance(value, list)}
    common = {name: value for name, value in row.items() if name not in lists}
    policies = max((len(value) for value in lists.values()), default=1)
    return [
        common | {"policy": p} | {name: value[p] for name, value in lists.items() if p < len(value)}
        for p in range(policies)
    ]


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV log, with numbers parsed."""
    try:
        with path.open(newline="") as file:
            return [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); restore it") from None


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text
