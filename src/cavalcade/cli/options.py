"""Options as rows of plain data: what a dataclass offers on the command line, with type, bounds, default and help.

The parser, help, completion and hints for typing errors all work on these rows.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

T = TypeVar("T")
_POSITIONAL = "positional"
Positional = Annotated[T, _POSITIONAL]  # a field that is given by its place, without a flag
_KINDS = {int: "whole", float: "number", bool: "switch", Path: "path", str: "text"}
_PLACEHOLDERS = {"whole": "N", "number": "X", "path": "PATH", "text": "TEXT"}


@dataclass(frozen=True)
class Option:
    """One option, or one positional argument."""

    name: str  # of the field, e.g. learning_rate
    kind: str = "text"  # whole, number, switch, path, text or choice
    help: str = ""
    path: tuple[str, ...] = ()  # fields that lead to it
    default: Any = None
    required: bool = False
    positional: bool = False
    many: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    targets: str = ""  # the targets that have it, if not all

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def placeholder(self) -> str:
        """What stands for its value in help."""
        text = "|".join(self.choices) if self.choices else _PLACEHOLDERS.get(self.kind, "")
        if self.positional and not self.choices:
            return self.name.upper().removesuffix("S") + "…" if self.many else self.name.upper()
        return f"{text},…" if self.many else text

    @property
    def spelt(self) -> str:
        """As it is written on the command line."""
        if self.positional:
            return self.placeholder
        if self.kind == "switch":
            return f"--no-{self.flag[2:]}" if self.default else self.flag
        return f"{self.flag} {self.placeholder}"

    @property
    def allowed(self) -> str:
        """Its values, in words."""
        if self.kind == "whole":
            return "a whole number" + (f" of at least {self.low:g}" if self.low is not None else "")
        if self.kind == "number":
            return "a number" + (f" from {self.low:g} to {self.high:g}" if self.high is not None else "")
        return f"one of {', '.join(self.choices)}"


def options_of(kind: Any, default: Any = None, where: tuple[str, ...] = ()) -> list[Option]:
    """The options of a dataclass, with those of nested ones. default: an instance with the defaults."""
    hints, texts = typing.get_type_hints(kind, include_extras=True), _descriptions(kind)
    found: list[Option] = []
    for field in dataclasses.fields(kind):
        hint, path, value = hints[field.name], (*where, field.name), _default(field, default)
        if dataclasses.is_dataclass(hint):
            found += options_of(hint, None if value is MISSING else value, path)
        elif field.name != "target" or _POSITIONAL in getattr(hint, "__metadata__", ()):  # a target comes first
            typed = _typed(hint)
            known: dict[str, Any] = (
                {"required": True} if value is MISSING and not typed.get("many") else {"default": _plain(value)}
            )
            bounds = {"low": field.metadata.get("least", field.metadata.get("low")), "high": field.metadata.get("high")}
            found.append(Option(field.name, help=texts.get(field.name, ""), path=path, **bounds, **typed, **known))
    return found


def with_defaults(options: Sequence[Option], plain: Mapping[str, Any]) -> list[Option]:
    """Options with other defaults, given as plain data nested like the dataclass."""

    def found(option: Option) -> Option:
        place: Any = plain
        for name in option.path:
            if not isinstance(place, Mapping) or name not in place:
                return option
            place = place[name]
        return dataclasses.replace(option, default=_plain(place), required=False)

    return [found(option) for option in options]


def union(options: Mapping[str, Sequence[Option]]) -> list[Option]:
    """The options of several targets; those that not all have say which do, and defaults that differ are left out."""
    found: dict[str, dict[str, Option]] = {}
    for target, rows in options.items():
        for option in rows:
            found.setdefault(option.name, {})[target] = option
    rows = []
    for of in found.values():
        first = next(iter(of.values()))
        same = all(option.default == first.default for option in of.values())
        targets = "" if len(of) == len(options) else ", ".join(of)
        rows.append(dataclasses.replace(first, default=first.default if same else None, targets=targets))
    return rows


def _default(field: Any, default: Any) -> Any:
    if default is not None:
        return getattr(default, field.name)
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if value is MISSING or value is None or value == () or value == []:
        return None
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _typed(hint: Any) -> dict[str, Any]:
    """What a type hint says."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _typed(inner[0]) | {"positional": _POSITIONAL in inner[1:]}
    if origin in (types.UnionType, typing.Union):
        return _typed(next(option for option in inner if option is not type(None)))
    if origin is tuple:
        return _typed(inner[0]) | {"many": True}
    if origin is Literal:
        return {"kind": "choice", "choices": inner}
    return {"kind": _KINDS[hint]}


@functools.cache
def _descriptions(kind: Any) -> dict[str, str]:
    """The strings below the fields of a dataclass and of those it extends."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= dict(_strings_below_fields(base))
    return found


def _strings_below_fields(kind: type) -> Iterator[tuple[str, str]]:
    import ast
    import inspect
    import textwrap

    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):  # made at run time
        return
    for one, other in pairwise(getattr(body, "body", [])):
        text = other.value if isinstance(other, ast.Expr) else None
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Constant):
            yield one.target.id, " ".join(str(text.value).split())
