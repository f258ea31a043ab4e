"""Files that are there whole or not at all, also after a power cut."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def aside_of(path: Path) -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".writing-{path.name}")


def to_disk(path: Path) -> None:
    """Flushes a file or folder to disk, so that it survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot flush folders
            raise
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a file to write beside `path`, which takes its place after the block; a device is written itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    aside = aside_of(path)
    try:
        yield aside
        to_disk(aside)
        aside.replace(path)
        to_disk(path.parent)
    except BaseException:
        with suppress(OSError):
            aside.unlink()
        raise


def make_folder(path: Path) -> list[Path]:
    """Makes a folder and those above it, and flushes what is new; returns the new ones, the innermost first."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        to_disk(folder.parent)
    return new
