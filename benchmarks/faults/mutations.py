"""Ways to break a file: cut, flipped, replaced by something else, or with a header that promises too much."""

import io
import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Break = Callable[[Path], None]  # breaks the file at a path
GIGABYTE = 1 << 30


def mutations(path: Path, other: Path, rng: random.Random, flips: int) -> Iterator[tuple[str, Break]]:
    """Names of faults, and what breaks a file so; other: a file in its place; flips: number of single bits."""
    content = path.read_bytes()
    for percent in range(100):
        yield f"cut to {percent} %", _cut(content, len(content) * percent // 100)
    for _ in range(flips if content else 0):
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        yield f"bit {bit} of byte {place}", _flipped(content, place, bit)
    for name, found in REPLACED.items():
        yield name, found
    if other.is_file():
        yield "that of another run", _writes(other.read_bytes())
    for name, found in _contents(path.suffix, content):
        yield name, _writes(found)
    if path.suffix == ".npz":
        yield from _of_arrays(content)


def _writes(content: bytes) -> Break:
    def write(path: Path) -> None:
        _removed(path).write_bytes(content)

    return write


def _cut(content: bytes, length: int) -> Break:
    return lambda path: _writes(content[:length])(path)


def _flipped(content: bytes, place: int, bit: int) -> Break:
    flipped = bytes([content[place] ^ (1 << bit)])
    return lambda path: _writes(content[:place] + flipped + content[place + 1 :])(path)


def _removed(path: Path) -> Path:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    return path


def _zeros(path: Path) -> None:
    with _removed(path).open("wb") as file:
        file.truncate(GIGABYTE)  # a hole: no disk is needed


REPLACED: dict[str, Break] = {
    "missing": lambda path: _removed(path) and None,
    "a folder": lambda path: _removed(path).mkdir(),
    "a link to nowhere": lambda path: _removed(path).symlink_to("nowhere"),
    "a link to itself": lambda path: _removed(path).symlink_to(path),
    "a pipe": lambda path: os.mkfifo(_removed(path)),
    "1 GB of zeros": _zeros,
    "/dev/zero": lambda path: _removed(path).symlink_to("/dev/zero"),
}


def _contents(suffix: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Contents that are wrong in a way of their own, by kind of file."""
    yield "empty", b""
    yield "not UTF-8", b"\xff\xfe" + content
    if suffix in (".json", ".jsonl", ".yaml"):
        for name, text in {
            "null": "null", "a list": "[]", "a number": "3", "text": '"text"', "an empty mapping": "{}",
            "deep": "[" * 100_000, "deep mapping": '{"a":' * 100_000, "NaN": "NaN", "huge": "9" * 100_000,
        }.items():  # fmt: skip
            yield name, text.encode()
    if suffix == ".json":
        yield from _of_json(content)
    if suffix == ".yaml":
        yield "bomb", ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )).encode()  # fmt: skip
        yield "a Python object", b"!!python/object/apply:os.system ['touch executed']\n"
        lines = content.decode().splitlines()
        for i, line in enumerate(lines):
            for value in ("null", "-1", "1e308", "[]", "{}", "99999999999999999999", "text", "0.1.0"):
                if ": " in line:
                    yield (
                        f"{line.partition(':')[0].strip()} is {value}",
                        "\n".join([*lines[:i], f"{line.partition(': ')[0]}: {value}", *lines[i + 1 :]]).encode(),
                    )
    if suffix == ".safetensors":
        yield from _of_tensors(content)


def _of_json(content: bytes) -> Iterator[tuple[str, bytes]]:
    plain = json.loads(content)
    for name in plain if isinstance(plain, dict) else ():
        for value in (None, -1, 1e308, [], {}, "text", "0.1.0", 99, 10**30):
            yield f"{name} is {value}", json.dumps(plain | {name: value}).encode()
        yield f"without {name}", json.dumps({key: value for key, value in plain.items() if key != name}).encode()


def _of_tensors(content: bytes) -> Iterator[tuple[str, bytes]]:
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for size in (0, 1, 2**31, 2**63, 2**64 - 1):
        yield f"a header of {size} bytes", struct.pack("<Q", size) + content[8:]
    first = next(name for name in header if name != "__metadata__")
    for what, value in {
        "shape": [[10**12], [0], [-1], [2**62, 2**62], "x", [[1]]], "dtype": ["F128", "", 3], "data_offsets": [
            [0, 10**15], [-8, 0], [10**15, 0], []],
    }.items():  # fmt: skip
        for odd in value:
            text = json.dumps(header | {first: header[first] | {what: odd}}).encode()
            yield f"{what} is {odd}", struct.pack("<Q", len(text)) + text + content[8 + length :]
    text = json.dumps({name: value for name, value in header.items() if name != first}).encode()
    yield f"without {first}", struct.pack("<Q", len(text)) + text + content[8 + length :]


def _of_arrays(content: bytes) -> Iterator[tuple[str, Break]]:
    """Archives with arrays of other kinds, or with one less; made when they are needed."""

    def saved(name: str, odd: Any) -> Break:
        def write(path: Path) -> None:
            out = io.BytesIO()
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                arrays = {one: archive[one] for one in archive.files if one != name}
            np.savez(out, allow_pickle=True, **arrays, **({name: odd} if odd is not None else {}))
            _writes(out.getvalue())(path)

        return write

    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        names = list(archive.files)
    for name in names:
        yield f"{name} is an object", saved(name, np.array([print], object))
        yield f"{name} is empty", saved(name, np.zeros(0))
        yield f"{name} is NaN", saved(name, np.array(np.nan))
        yield f"without {name}", saved(name, None)
    for shape in (b"(999999999999, )", b"(99999, 99999, 99999)", b"(-1, )"):
        at = content.find(b"'shape': (")
        end = content.find(b")", at)
        odd = b"'shape': " + shape
        room = end + 1 - at
        yield f"shape {shape.decode()}", _writes(content[:at] + odd[:room].ljust(room) + content[end + 1 :])
