"""Append-only logs, buffered for up to 100 rows or 2 seconds."""

import io
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from cavalcade.core.errors import RunError
from cavalcade.core.files import check_file

ROWS, SECONDS = 100, 2.0


def check_size(path: Path, offset: int | None) -> None:
    """Raises `RunError` if a log is not a file, or shorter than a checkpoint says."""
    if path.exists():
        try:
            check_file(path)
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}; restore it") from None
    size = path.stat().st_size if path.exists() else 0
    if offset is not None and size < offset:
        raise RunError(f"{path} has {size} bytes, the checkpoint says {offset}; the log was truncated, restore it")


def check_sizes(folder: Path, offsets: Mapping[str, int]) -> None:
    """As `check_size`, for all logs of a checkpoint: before any of them is cut back, or anything else is written."""
    for name, offset in offsets.items():
        check_size(folder / name, offset)


class Log:
    """A text file of rows. Opened at `offset`, it is truncated there: later rows are from after the checkpoint."""

    def __init__(self, path: Path, header: str | None = None, offset: int | None = None):
        self.path = path
        self._held: list[str] = []
        self._since = time.monotonic()
        check_size(path, offset)
        self._file = io.open(path, "r+b" if path.exists() else "w+b", buffering=0)  # noqa: UP020, SIM115
        self._file.truncate(offset or 0)
        self._file.seek(offset or 0)
        if header and not offset:
            self.write([header])

    def write(self, rows: Iterable[str]) -> None:
        """Adds rows; flushes once enough are buffered."""
        self._held += rows
        if len(self._held) >= ROWS or time.monotonic() - self._since > SECONDS:
            self.flush()

    def flush(self) -> int:
        """Writes buffered rows and returns the size of the file; a failed write leaves no partial row."""
        if self._held:
            content = ("\n".join(self._held) + "\n").encode()
            start = self._file.tell()
            try:
                written = self._file.write(content)
                if written != len(content):
                    raise OSError(28, "no space left on device")
            except OSError as error:
                self._file.truncate(start)
                self._file.seek(start)
                raise RunError(
                    f"{self.path} cannot be written: {os.strerror(error.errno or 0)}; free disk space and resume"
                ) from None
            self._held.clear()
        self._since = time.monotonic()
        return self._file.tell()

    def sync(self) -> int:
        """Flushes to disk, so that a checkpoint may rely on it after a power cut; returns the size of the file."""
        size = self.flush()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror}; free disk space and resume") from None
        return size

    def close(self) -> None:
        self.flush()
        self._file.close()
