"""A disk as a list of operations: what it holds after each of them, and what a power cut may leave of it.

A killed process leaves everything that it has written: the page cache survives it. A power cut leaves of a file what
was flushed by fsync, and any part of later writes, perhaps torn or as zeros; of a folder the entries that were there
when it was flushed, and the first few of the later changes.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FOLDER = -1  # in place of the number of a file


class Op(NamedTuple):
    """One operation. Paths are relative to the recorded folder."""

    kind: str  # create, write, truncate, rename, unlink, mkdir, rmdir, sync
    path: str  # where it is now; of a rename: the old one
    file: int = FOLDER
    offset: int = 0
    data: bytes = b""
    to: str = ""  # of a rename

    def __str__(self) -> str:
        more = f" {len(self.data)} bytes" if self.kind == "write" else f" to {self.to}" if self.to else ""
        return f"{self.kind} {self.path}{more}"


@dataclass
class Disk:
    """Files by number, and the entries of all folders: path and number."""

    contents: dict[int, bytes] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)

    def copy(self) -> "Disk":
        return Disk(dict(self.contents), dict(self.entries))

    def apply(self, op: Op) -> None:
        if op.kind in ("write", "truncate"):
            self.contents[op.file] = changed(self.contents.get(op.file, b""), op)
        elif op.kind == "create":
            self.contents.setdefault(op.file, b"")
            self.entries[op.path] = op.file
        elif op.kind == "mkdir":
            self.entries[op.path] = FOLDER
        elif op.kind in ("unlink", "rmdir"):
            self.entries.pop(op.path, None)
        elif op.kind == "rename":
            self._rename(op.path, op.to)

    def _rename(self, old: str, new: str) -> None:
        moved = {path: file for path, file in self.entries.items() if path == old or path.startswith(f"{old}/")}
        for path, file in moved.items():
            del self.entries[path]
            self.entries[new + path.removeprefix(old)] = file

    def write_to(self, folder: Path) -> None:
        """Makes a folder hold what this disk holds; entries of folders that are not there are lost."""
        folder.mkdir(parents=True, exist_ok=True)
        for path, file in sorted(self.entries.items()):
            place = folder / path
            if not place.parent.is_dir():
                continue
            if file == FOLDER:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(self.contents.get(file, b""))


def changed(content: bytes, op: Op) -> bytes:
    """A file after a write or a truncation."""
    if op.kind == "truncate":
        return content[: op.offset].ljust(op.offset, b"\0")
    head = content[: op.offset].ljust(op.offset, b"\0")
    return head + op.data + content[op.offset + len(op.data) :]


def read_disk(folder: Path) -> Disk:
    """The disk that a folder is."""
    found = Disk()
    for number, path in enumerate(sorted(folder.rglob("*"))):
        relative = path.relative_to(folder).as_posix()
        found.entries[relative] = FOLDER if path.is_dir() else number
        if not path.is_dir():
            found.contents[number] = path.read_bytes()
    return found


def after_kill(start: Disk, ops: Sequence[Op], torn: int | None = None) -> Disk:
    """The disk after some operations; torn: so many bytes of the last one, a write, have arrived."""
    disk = start.copy()
    for i, op in enumerate(ops):
        last = torn is not None and i == len(ops) - 1
        disk.apply(op._replace(data=op.data[:torn]) if last and op.kind == "write" else op)
    return disk


KEPT = ("nothing", "names", "some")  # what a power cut leaves of whatever was not flushed


def after_power_loss(start: Disk, ops: Iterable[Op], kept: str, rng: random.Random) -> Disk:
    """What a power cut may leave; kept: nothing, names (of files whose content is lost), or a part drawn by `rng`."""
    now, safe = start.copy(), start.copy()
    changes: dict[str, list[Op]] = {}  # of folders, since they were flushed
    writes: dict[int, list[Op]] = {}  # of files
    for op in ops:
        now.apply(op)
        if op.kind in ("write", "truncate"):
            writes.setdefault(op.file, []).append(op)
        elif op.kind == "sync" and op.file == FOLDER:
            for change in changes.pop(op.path, []):
                safe.apply(change)
        elif op.kind == "sync":
            safe.contents[op.file] = now.contents[op.file]
            writes.pop(op.file, None)
        else:
            changes.setdefault(_parent(op.path), []).append(op)
    for pending in changes.values():
        count = {"nothing": 0, "names": len(pending)}.get(kept, rng.randint(0, len(pending)))
        for change in pending[:count]:
            safe.apply(change)
    if kept == "some":
        for file, pending in writes.items():
            safe.contents[file] = _part(safe.contents.get(file, b""), pending, rng)
    return safe


def _part(content: bytes, writes: list[Op], rng: random.Random) -> bytes:
    """A file with some of its last writes, the last of them torn or as zeros."""
    count = rng.randint(0, len(writes))
    for op in writes[:count]:
        content = changed(content, op)
    if count < len(writes) and writes[count].kind == "write":
        op = writes[count]
        length = rng.randint(0, len(op.data))
        data = bytes(length) if rng.random() < 0.3 else op.data[:length]
        content = changed(content, op._replace(data=data))
    return content


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
