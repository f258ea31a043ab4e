"""Small files of a run as plain data. What is missing, too large, damaged or a link out of the folder is empty."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import yaml

from cavalcade.runs.files import SEARCH
from cavalcade.watch import security

MOST_BYTES = 16 << 20  # of a file that is read as a whole
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # either builds plain data only
_DEEPEST = 100
_TEXTS = ("purpose", "kind", "order", "start", "stop", "bound")  # columns of search.csv that are not numbers
Plain = dict[str, Any]


def _check_depth(text: str) -> None:
    """Raises `ValueError` for deep nesting: it would overflow the stack of the compiled loader and end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError(f"nested more than {_DEEPEST} deep")


def read_yaml(path: Path) -> Plain | None:
    """A mapping in a YAML file of a run, or None."""
    try:
        text = read_text(path)
        _check_depth(text)
        plain = yaml.load(text, Loader=_LOADER)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return None
    return plain if isinstance(plain, dict) else None


def read_json(path: Path) -> Any:
    """Contents of a JSON file of a run, or None."""
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return None


def read_text(path: Path) -> str:
    """Text of a file of a run, unless it is too large or a link; raises `OSError` or `ValueError`."""
    if not security.is_file(path):
        raise FileNotFoundError(path)
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path} has more than {MOST_BYTES} bytes")
    return data.decode()


def read_trainings(path: Path) -> list[Plain]:
    """Rows of a search's search.csv, numbers parsed; rows that are incomplete or damaged are left out."""
    try:
        text = read_text(path / SEARCH)
    except (OSError, ValueError):
        return []
    complete = text[: text.rfind("\n") + 1]
    try:
        rows = list(csv.DictReader(io.StringIO(complete)))
    except csv.Error:
        return []
    found = []
    for row in rows:
        try:
            found.append({name: text if name in _TEXTS else _number(text) for name, text in row.items()})
        except (TypeError, ValueError, AttributeError):
            continue
    return [row for row in found if {"number", "kind", "order", "score"} <= row.keys()]


def _number(text: str) -> float | None:
    return float(text) if text else None
