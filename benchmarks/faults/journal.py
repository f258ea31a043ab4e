"""Records what this process does to the files below a folder, in Python: no strace, no preloaded library.

`open`, `io.open` and the functions of `os` that change files are replaced. Files that are opened for writing are
Python's own over an `io.FileIO` that records, so that an operation of the journal is one system call; tensors, which a
compiled library writes, are written through it, too. `Journal.complete` compares the recorded disk with the real one
afterwards. A fault can be injected before the n-th operation: the end of the process, or a disk that is full.
"""

import builtins
import errno
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from benchmarks.faults.disk import FOLDER, Disk, Op, read_disk

NEED_ROOM = ("create", "write", "mkdir", "sync")
Fault = Callable[[int, Op], None]  # called before each operation with its number; may raise OSError or not return
_open, _rename, _unlink, _rmdir, _mkdir, _fsync, _os_open, _truncate = (
    io.open, os.rename, os.unlink, os.rmdir, os.mkdir, os.fsync, os.open, os.truncate,
)  # fmt: skip


def full_disk(at: int) -> Fault:
    """No space from operation `at` on; what frees space succeeds."""

    def fault(number: int, op: Op) -> None:
        if number >= at and op.kind in NEED_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), op.path)

    return fault


def killed(at: int) -> Fault:
    """The process ends at operation `at`, as by kill -9: nothing is flushed, no handler runs."""

    def fault(number: int, op: Op) -> None:
        if number == at:
            os._exit(137)

    return fault


class Journal:
    """Operations on files below `root`, in the order in which they were done."""

    def __init__(self, root: Path, fault: Fault | None = None):
        self.root = Path(os.path.realpath(root))
        self.start = read_disk(self.root) if self.root.is_dir() else Disk()
        self.ops: list[Op] = []
        self._fault = fault
        self._disk = self.start.copy()
        self._next = max(self.start.contents, default=0) + 1

    def relative(self, path: Any, dir_fd: int | None = None) -> str | None:
        """A path below the root, relative to it; None elsewhere."""
        if isinstance(path, int):
            whole = os.readlink(f"/proc/self/fd/{path}")
        else:
            whole = os.fsdecode(path)
            if dir_fd is not None:
                whole = os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), whole)
            whole = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(whole))), os.path.basename(whole))
        root = str(self.root)
        if whole == root:
            return ""
        return whole[len(root) + 1 :] if whole.startswith(root + "/") else None

    def allow(self, op: Op) -> None:
        """Called before an operation: injects the fault."""
        if self._fault:
            self._fault(len(self.ops), op)

    def over(self) -> None:
        """No more faults: what is done from now on is not the command's doing."""
        self._fault = None

    def add(self, op: Op) -> None:
        """Called after an operation that was done."""
        self.ops.append(op)
        self._disk.apply(op)

    def opened(self, path: str) -> int:
        """The number of a file, which is created if it is not there."""
        if path not in self._disk.entries:
            self.add(Op("create", path, self._next))
            self._next += 1
        return self._disk.entries[path]

    def known(self, path: str) -> bool:
        return path in self._disk.entries

    def number(self, path: str) -> int:
        return self._disk.entries.get(path, FOLDER)

    def complete(self) -> list[str]:
        """Names of files that differ from those that the journal says are there: empty if nothing was missed."""

        def files(disk: Disk) -> dict[str, bytes]:
            return {p: disk.contents[n] if n != FOLDER else b"<folder>" for p, n in disk.entries.items()}

        mine, real = files(self._disk), files(read_disk(self.root)) if self.root.is_dir() else {}
        return sorted(p for p in mine.keys() | real.keys() if mine.get(p) != real.get(p))


class _File(io.FileIO):
    """A file whose writes are recorded."""

    def __init__(self, journal: Journal, path: Any, relative: str, mode: str):
        there = journal.known(relative)
        if not there or "w" in mode:
            journal.allow(Op("truncate" if there else "create", relative))
        super().__init__(path, mode)
        self._journal, self._relative = journal, relative
        self._number = journal.opened(relative)
        if there and "w" in mode:
            journal.add(Op("truncate", relative, self._number))

    def write(self, data: Any) -> int:
        content = bytes(data)
        offset = os.fstat(self.fileno()).st_size if "a" in self.mode else self.tell()
        op = Op("write", self._relative, self._number, offset, content)
        self._journal.allow(op)
        done = super().write(content)
        self._journal.add(op._replace(data=content[:done]))
        return done

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        op = Op("truncate", self._relative, self._number, size)
        self._journal.allow(op)
        done = super().truncate(size)
        self._journal.add(op)
        return done


@contextmanager
def recording(root: Path, fault: Fault | None = None) -> Iterator[Journal]:
    """Records what the block does below a folder."""
    journal = Journal(root, fault)
    replaced = _functions(journal)
    before = {(module, name): getattr(module, name) for module, name, _ in replaced}
    for module, name, function in replaced:
        setattr(module, name, function)
    try:
        yield journal
    finally:
        for (module, name), function in before.items():
            setattr(module, name, function)


def _functions(journal: Journal) -> list[tuple[Any, str, Any]]:
    def opening(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        relative = None if isinstance(file, int) or not set(mode) & set("wax+") else journal.relative(file)
        if relative is None:
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _File(journal, file, relative, mode.replace("b", "").replace("t", ""))
        if buffering == 0:
            return raw
        binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)

    def simple(kind: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path, *args, dir_fd=None, **options):
            relative = journal.relative(path, dir_fd)
            if dir_fd is not None:
                options["dir_fd"] = dir_fd
            if relative is None:
                return real(path, *args, **options)
            op = Op(kind, relative, journal.number(relative))
            journal.allow(op)
            found = real(path, *args, **options)
            journal.add(op)
            return found

        return call

    def rename(old, new, **options):
        relative, to = journal.relative(old), journal.relative(new)
        if relative is None or to is None:
            return _rename(old, new, **options)
        op = Op("rename", relative, to=to)
        journal.allow(op)
        os_done = _rename(old, new, **options)
        journal.add(op)
        return os_done

    def fsync(handle):
        relative = journal.relative(handle if isinstance(handle, int) else handle.fileno())
        if relative is None:
            return _fsync(handle)
        op = Op("sync", relative, journal.number(relative))
        journal.allow(op)
        journal.add(op)  # the machine itself need not wait for its disk
        return None

    def open_handle(path, flags, mode=0o777, *, dir_fd=None):
        relative = journal.relative(path, dir_fd) if flags & os.O_CREAT else None
        if relative is not None and not journal.known(relative):
            journal.allow(Op("create", relative))
        handle = _os_open(path, flags, mode, dir_fd=dir_fd)
        if relative is not None:
            journal.opened(relative)
        return handle

    def serialize_file(flat, filename, metadata=None):
        with tempfile.TemporaryDirectory() as folder:
            aside = os.path.join(folder, "tensors")
            _serialize(flat, aside, metadata=metadata)
            with _open(aside, "rb") as file:
                content = file.read()
        with opening(filename, "wb", buffering=0) as file:
            for i in range(0, len(content), 1 << 16):
                file.write(content[i : i + (1 << 16)])

    _serialize = safetensors.torch.serialize_file
    return [
        (builtins, "open", opening), (io, "open", opening), (os, "rename", rename), (os, "replace", rename),
        (os, "unlink", simple("unlink", _unlink)), (os, "remove", simple("unlink", _unlink)),
        (os, "rmdir", simple("rmdir", _rmdir)), (os, "mkdir", simple("mkdir", _mkdir)),
        (os, "fsync", fsync), (os, "fdatasync", fsync), (os, "open", open_handle),
        (shutil, "_USE_CP_SENDFILE", False), (safetensors.torch, "serialize_file", serialize_file),
    ]  # fmt: skip
