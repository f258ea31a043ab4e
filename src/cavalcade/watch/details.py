"""The page of one run: settings, machine, history, notes, checkpoints, held-out scores and seconds by phase."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cavalcade.runs.files import CHECKPOINTS, CONFIG, HELDOUT, HISTORY, META, NOTES, STATE
from cavalcade.watch import security
from cavalcade.watch.reading import Plain, read_json, read_text, read_yaml

_MOST = 200  # notes and events shown, the newest


def details(path: Path) -> Plain:
    """Everything about a run that is not a curve."""
    saved = checkpoints(path)
    return {
        "config": flat(read_yaml(path / CONFIG) or {}),
        "meta": _mapping(read_json(path / META)),
        "heldout": _mapping(read_json(path / HELDOUT)),
        "history": rows(path / HISTORY),
        "notes": rows(path / NOTES),
        "checkpoints": saved,
        "phases": next((found["phases"] for found in reversed(saved) if found.get("phases")), {}),
    }


def flat(plain: Any, where: str = "") -> Plain:
    """Settings by dotted name."""
    found: Plain = {}
    for name, value in plain.items():
        here = f"{where}{name}"
        found |= flat(value, f"{here}.") if isinstance(value, dict) and value else {here: value}
    return found


def rows(path: Path) -> list[Plain]:
    """Rows of a small JSON log, the newest; lines that are not rows are left out."""
    found = []
    with suppress(OSError, ValueError):
        for line in read_text(path).splitlines()[-_MOST:]:
            with suppress(ValueError, RecursionError):
                found.append(json.loads(line))
    return [row for row in found if isinstance(row, dict)]


def checkpoints(path: Path) -> list[Plain]:
    """Checkpoints, oldest first."""
    found = []
    with suppress(OSError):
        for folder in sorted((path / CHECKPOINTS).iterdir()) if security.is_folder(path / CHECKPOINTS) else ():
            if not folder.name.isdecimal() or not security.is_folder(folder):
                continue
            with suppress(OSError):
                sizes = [file.stat().st_size for file in folder.iterdir()]
                info = _mapping(read_json(folder / STATE))
                kept = {name: info.get(name) for name in ("steps", "episodes", "seconds", "phases")}
                date = folder.stat().st_mtime
                found.append({"update": int(folder.name), "bytes": sum(sizes), "date": date, **kept})
    return found


def _mapping(value: Any) -> Plain:
    return value if isinstance(value, dict) else {}
