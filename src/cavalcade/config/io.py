"""Configurations as plain data: to YAML and JSON, from it with errors that say what does not fit, and compared."""

import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import yaml

from cavalcade.config import renamed
from cavalcade.core.errors import ConfigError, one_of
from cavalcade.core.nearest import nearest

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
    """A configuration from plain data; what is not named is as in `base`, or the default. Says what does not fit.

    A nested part that names only some of its settings is completed from the default of its field.
    """
    if not isinstance(plain, dict):
        raise ConfigError(f"{where or kind.__name__} is {plain!r}; it must be a mapping of settings")
    known = {f.name: f for f in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    hints = typing.get_type_hints(kind)
    values = {name: getattr(base, name) for name in known} if base is not None else {}
    for name, value in renamed.moved(plain, known).items():
        if name not in known:
            name, value = renamed.setting(name, value)
        if name not in known:
            raise ConfigError(f"{where}{name} is not a setting; there are {', '.join(known)}")
        default = known[name].default_factory
        before = values[name] if name in values else default() if callable(default) else None
        values[name] = _convert(hints[name], value, f"{where}{name}", before)
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


def flat(config: Any, where: str = "") -> dict[str, Any]:
    """All settings by dotted name, as plain data."""
    found = {}
    for name, value in (config if isinstance(config, dict) else as_dict(config)).items():
        found |= flat(value, f"{where}{name}.") if isinstance(value, dict) else {f"{where}{name}": value}
    return found


def differences(one: Any, other: Any, where: str = "", besides: Iterable[str] = ()) -> list[str]:
    """The settings in which two configurations of a kind differ, in words; `besides`: settings that may."""
    found = []
    for f in dataclasses.fields(one):
        a, b, name = getattr(one, f.name), getattr(other, f.name), f"{where}{f.name}"
        if dataclasses.is_dataclass(a):
            found += differences(a, b, f"{name}.", besides)
        elif a != b and not listed(name, besides):
            found.append(f"{name} {a} before, {b} now")
    return found


def listed(name: str, names: Iterable[str]) -> bool:
    """Whether a dotted name, or a group that it belongs to, is among some names."""
    return any(name == one or name.startswith(f"{one}.") for one in names)


def parse_options(texts: tuple[str, ...]) -> dict[str, Any]:
    """Options of an environment from name=value; values are read as YAML, so that true, 3 and [1, 2] are typed."""
    if wrong := [text for text in texts if not text.partition("=")[0] or "=" not in text]:
        raise ConfigError(f"env_options has {wrong[0]!r}; each must be name=value")
    try:
        return {name: yaml.safe_load(value) for name, _, value in (text.partition("=") for text in texts)}
    except yaml.YAMLError:
        raise ConfigError(f"env_options {' '.join(texts)} cannot be read; quote values as in YAML") from None


def nested(kind: Any, flat: dict[str, Any]) -> dict[str, Any]:
    """Settings given by name alone, as plain data nested as in a configuration: red= becomes task.red.

    As people write them in Python: one value for a list of them, 1e6 for a whole number, a dict of options.
    """
    paths = {name: (path, hint) for name, path, hint in _paths(kind)}
    plain: dict[str, Any] = {}
    for name, value in flat.items():
        name, value = (name, value) if name in paths else renamed.setting(name, value)
        if name not in paths:
            near = nearest(name, paths)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(paths)}"
            raise ConfigError(f"{name} is not a setting; {hint}")
        (*outer, last), hint = paths[name]
        place = plain
        for part in outer:
            place = place.setdefault(part, {})
        place[last] = as_dict(value) if dataclasses.is_dataclass(value) else _from_python(hint, value)
    return plain


def _from_python(kind: Any, value: Any) -> Any:
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if typing.get_origin(kind) is tuple and isinstance(value, dict):
        return [f"{name}={json.dumps(one)}" for name, one in value.items()]
    if typing.get_origin(kind) is tuple and isinstance(value, str | int | float):
        return [value]
    return value


def _paths(kind: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...], Any]]:
    """Every setting of a configuration, where it lies, and its type."""
    hints = typing.get_type_hints(kind)
    for f in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[f.name]):
            yield from _paths(hints[f.name], (*where, f.name))
        else:
            yield f.name, (*where, f.name), hints[f.name]
