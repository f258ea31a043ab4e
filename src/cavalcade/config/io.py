"""Configurations as plain data: to YAML and JSON, from it with errors that say what does not fit, and compared."""

import dataclasses
import types
import typing
from typing import Any, Literal, TypeVar

from cavalcade.errors import ConfigError, one_of

T = TypeVar("T")


def as_dict(config: Any) -> dict[str, Any]:
    """A configuration as plain data, for YAML and JSON."""
    plain = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        plain[f.name] = (
            as_dict(value) if dataclasses.is_dataclass(value) else list(value) if isinstance(value, tuple) else value
        )
    return plain


def from_dict(kind: type[T], plain: Any, where: str = "", base: T | None = None) -> T:
    """A configuration from plain data; what is not named is as in `base`, or the default. Says what does not fit."""
    if not isinstance(plain, dict):
        raise ConfigError(f"{where or kind.__name__} is {plain!r}; it must be a mapping of settings")
    known = {f.name: f for f in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    hints = typing.get_type_hints(kind)
    values = {name: getattr(base, name) for name in known} if base is not None else {}
    for name, value in plain.items():
        if name not in known:
            raise ConfigError(f"{where}{name} is no setting; there are {', '.join(known)}")
        values[name] = _convert(hints[name], value, f"{where}{name}", values.get(name))
    return kind(**values)


def merged(one: Any, other: Any) -> Any:
    """Plain settings on top of others; nested ones are merged in turn."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return one | {name: merged(one[name], value) if name in one else value for name, value in other.items()}


def _convert(kind: Any, value: Any, where: str, base: Any) -> Any:
    """A value as its type wants it."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return from_dict(kind, value, f"{where}.", base)  # pyright: ignore[reportArgumentType]
    if origin is Literal:
        one_of(where, value, typing.get_args(kind))
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{where} is {value!r}; it must be a list")
        return tuple(_convert(typing.get_args(kind)[0], item, where, None) for item in value)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (option for option in typing.get_args(kind) if option is not type(None))
        return None if value is None else _convert(inner, value, where, base)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise ConfigError(f"{where} is {value!r}; it must be of type {kind.__name__}")
    return value


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """The settings in which two configurations of a kind differ, in words."""
    found = []
    for f in dataclasses.fields(one):
        a, b = getattr(one, f.name), getattr(other, f.name)
        if dataclasses.is_dataclass(a):
            found += differences(a, b, f"{where}{f.name}.")
        elif a != b:
            found.append(f"{where}{f.name} {a} before, {b} now")
    return found
