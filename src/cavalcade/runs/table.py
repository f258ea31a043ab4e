"""Logs of a run as tables: a pandas DataFrame if pandas is installed, else columns by name."""

import csv
from pathlib import Path
from typing import Any

from cavalcade.core.errors import RunError
from cavalcade.core.files import complete_lines, plain_json

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


def metrics_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, one per update; an incomplete last line is ignored."""
    try:
        return [plain_json(line) for line in complete_lines(path)]
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); restore it") from None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, one per update and policy."""
    return [row for update in metrics_rows(path) for row in _by_policy(update)]


def _by_policy(row: dict[str, Any]) -> list[dict[str, Any]]:
    lists = {name: value for name, value in row.items() if isinstance(value, list)}
    common = {name: value for name, value in row.items() if name not in lists}
    policies = max((len(value) for value in lists.values()), default=1)
    return [
        common | {"policy": p} | {name: value[p] for name, value in lists.items() if p < len(value)}
        for p in range(policies)
    ]


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV log; an incomplete last line is ignored."""
    try:
        return list(csv.DictReader(complete_lines(path)))
    except (OSError, ValueError, csv.Error) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}); restore it") from None


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV log, with numbers parsed."""
    return [{name: _number(value) for name, value in row.items()} for row in csv_rows(path)]


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text
