"""Command-line options: dataclasses parsed by tyro, comma-separated lists, and one-line errors."""

import contextlib
import dataclasses
import io
import os
import re
import sys
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tyro

from cavalcade.cli import fail
from cavalcade.core.errors import ConfigError

T = TypeVar("T")


def check_folder(name: str, path: Path | None) -> None:
    """Raises `ConfigError`, before any work is done, if a file could not be written."""
    if path and not path.absolute().parent.is_dir():
        raise ConfigError(f"{name} is {path}; there is no folder {path.parent}")


def import_from_here() -> None:
    """Lets users name packages in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def check_seconds(seconds: float) -> None:
    """Raises `ConfigError` unless the seconds to measure are above 0 and below 3600."""
    if not 0 < seconds < 3600:
        raise ConfigError(f"seconds is {seconds}; it must be above 0 and below 3600")


def option(args: Sequence[str], name: str) -> str | None:
    """Value of an option that is needed before all of them are parsed."""
    flag, found = f"--{name}", None
    for i, arg in enumerate(args):
        if arg == flag:
            found = args[i + 1] if i + 1 < len(args) else ""
        elif arg.startswith(f"{flag}="):
            found = arg.partition("=")[2]
    return found


def parse(options: type[T], args: Sequence[str], verb: str, default: T | None = None) -> T:
    """Parses the options of a verb; nested settings need no prefix."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            kind: Any = tyro.conf.OmitArgPrefixes[options]  # pyright: ignore[reportInvalidTypeForm]
            given: Any = {} if default is None else {"default": default}
            return tyro.cli(kind, args=split_lists(options, args), prog=f"cavalcade {verb}", **given)
    except SystemExit as stop:
        if not stop.code:
            raise
        fail(f"cavalcade {verb}: {_one_line(said.getvalue(), options)}")


def flags(options: Any) -> Iterator[tuple[str, Any]]:
    """Names and types of all settings, including those of nested dataclasses."""
    hints = typing.get_type_hints(options, include_extras=True)
    for field in dataclasses.fields(options):
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            yield from flags(kind)
        else:
            yield field.name, kind


def split_lists(options: Any, args: Sequence[str]) -> list[str]:
    """Arguments with `--hidden 64,64` rewritten as `--hidden 64 64`."""
    lists = {f"--{name.replace('_', '-')}" for name, kind in flags(options) if typing.get_origin(kind) is tuple}
    found: list[str] = []
    for arg in args:
        flag, sign, value = arg.partition("=")
        if sign and flag in lists:
            found += [flag, *value.split(",")]
        elif found and found[-1] in lists and "," in arg:
            found += arg.split(",")
        else:
            found.append(arg)
    return found


def _one_line(panel: str, options: Any) -> str:
    """First paragraph of tyro's boxed message on one line; for an unknown option, with the known ones."""
    lines = [line.strip("│ \t") for line in re.sub(r"\x1b\[[0-9;]*m", "", panel).splitlines()]
    body = [line for line in lines if line and line[0] not in "╭╰"]
    rules = [i for i, line in enumerate(body) if set(line) <= {"─", "-"}]
    first = 2 if rules[:1] == [1] else 0  # without box drawing, the title is above a rule
    last = next((i for i in rules if i >= first), len(body))
    text = " ".join(body[first:last])
    if text.startswith("Unrecognized"):
        text += f"; options are {', '.join(_spelt(name, kind) for name, kind in flags(options))}"
    return text[0].lower() + text[1:] if text else "bad options"


def _spelt(name: str, kind: Any) -> str:
    """A setting as it is written on the command line."""
    return name.upper() if "Positional" in str(kind) else f"--{name.replace('_', '-')}"
