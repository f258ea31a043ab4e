"""Reads NumPy archives that may be damaged or far too large. Executes nothing in them."""

import errno
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.files import check_file

MOST_UNPACKED = 1 << 30  # bytes of the arrays
DAMAGED = (  # what reading a damaged archive may raise
    OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, MemoryError, RuntimeError,
    zlib.error, zipfile.BadZipFile, tokenize.TokenError,
)  # fmt: skip


def read_arrays(path: Path, most: int = MOST_UNPACKED) -> dict[str, NDArray]:
    """Arrays of a NumPy archive, without Python objects; raises one of `DAMAGED`, also if they are far too large."""
    check_file(path)
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if sum(part.file_size for part in archive.zip.infolist()) > most:
            raise OSError(errno.EFBIG, f"it unpacks to more than {most >> 20} MB", str(path))
        return {name: archive[name] for name in archive.files}
