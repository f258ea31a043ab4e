"""Reads files that may be anything: pipes, devices, damaged, or far too large. Executes nothing in them."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 26  # of a file that is read as a whole


def check_file(path: Path, most: int | None = None) -> None:
    """Raises `OSError` unless a path is a regular file, of at most so many bytes: to read a pipe may never end."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        folder = stat.S_ISDIR(found.st_mode)
        raise OSError(errno.EISDIR if folder else errno.EINVAL, "it is not a file", str(path))
    if most is not None and found.st_size > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 20} MB", str(path))


def read_text(path: Path, most: int | None = MOST_BYTES) -> str:
    """Text of a file; raises `OSError`, or `ValueError` if it is not UTF-8."""
    check_file(path, most)
    return path.read_text()


def complete_lines(path: Path, end: float = float("inf"), most: int = MOST_BYTES) -> Iterator[str]:
    """Lines of a log that begin before an offset, one at a time, without a last one that is still being written.

    Raises `OSError`, or `ValueError` if a line has more than so many bytes or is not UTF-8.
    """
    check_file(path)
    with path.open("rb") as file:
        while file.tell() < end:
            line = file.readline(most)
            if not line.endswith(b"\n"):
                if len(line) == most:
                    raise ValueError(f"a line has more than {most} bytes")
                return
            yield line.decode()


def plain_json(text: str) -> Any:
    """Plain data; raises `ValueError`, however JSON is broken."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def plain_yaml(text: str) -> Any:
    """Plain data; raises `ValueError` with a reason of one line, however YAML is broken."""
    import yaml

    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(str(error).splitlines()[0]) from None
