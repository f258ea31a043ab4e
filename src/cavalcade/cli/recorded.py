"""Files of recorded episodes that are named on the command line."""

from collections.abc import Iterator
from pathlib import Path

from cavalcade.core.errors import TraceError


def expand(given: tuple[Path, ...]) -> Iterator[Path]:
    """Files, and those in folders."""
    for path in given:
        if path.is_dir():
            inside = sorted(path.glob("*.npz"))
            if not inside:
                raise TraceError(f"{path}: no .npz file in this folder")
            yield from inside
        else:
            yield path
