"""The log of notes: what a training said besides its metrics, e.g. fallbacks and restarted workers."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from cavalcade.core.errors import RunError
from cavalcade.core.files import check_file
from cavalcade.runs.files import NOTES


def add_notes(path: Path, update: int, notes: Iterable[str]) -> None:
    """Appends notes to the log of a run, a row each: date, update, note."""
    date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    rows = [json.dumps({"date": date, "update": update, "note": note}, ensure_ascii=False) + "\n" for note in notes]
    if not rows:
        return
    try:
        if (path / NOTES).exists():
            check_file(path / NOTES)  # a pipe would be waited for
        with (path / NOTES).open("a") as file:
            file.write("".join(rows))
    except OSError as error:
        raise RunError(f"{path / NOTES} cannot be written: {error.strerror}") from None
