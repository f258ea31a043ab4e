"""Reads files that may be anything: pipes, devices, damaged, or far too large. Executes nothing in them."""

import errno
import json
import os
import stat
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_BYTES = 1 << 26  # of a file that is read as a whole
MOST_UNPACKED = 1 << 30  # bytes of its arrays
DAMAGED = (  # what reading a damaged archive may raise
    OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, MemoryError, RuntimeError,
    zlib.error, zipfile.BadZipFile,
)  # fmt: skip


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


def read_arrays(path: Path, most: int = MOST_UNPACKED) -> dict[str, NDArray]:
    """Arrays of a NumPy archive, without Python objects; raises one of `DAMAGED`, also if they are far too large."""
    check_file(path)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("not an archive of arrays")
        if sum(part.file_size for part in archive.zip.infolist()) > most:
            raise OSError(errno.EFBIG, f"it unpacks to more than {most >> 20} MB", str(path))
        return {name: archive[name] for name in archive.files}
