"""Games as JSON and back, so that recorded episodes need no package."""

import dataclasses
from typing import Any

from cavalcade.envs.mettagrid import game as games
from cavalcade.envs.mettagrid import handlers

_KINDS = {
    kind.__name__: kind
    for module in (games, handlers)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind)
}
_KIND = "is"  # key of the name of a data class


def to_plain(value: Any) -> Any:
    """Data classes as dictionaries, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_KIND: type(value).__name__} | fields
    return [to_plain(x) for x in value] if isinstance(value, tuple) else value


def from_plain(plain: Any) -> Any:
    """The reverse of `to_plain`; raises `KeyError` or `TypeError` for what it cannot have written."""
    if isinstance(plain, dict):
        return _KINDS[plain[_KIND]](**{name: from_plain(x) for name, x in plain.items() if name != _KIND})
    return tuple(from_plain(x) for x in plain) if isinstance(plain, list) else plain
