"""Reads handlers of the mettagrid package; parts that the compiled simulator does not support are refused by name."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cavalcade.core.errors import ConfigError
from cavalcade.envs.mettagrid.handlers import (
    AllOf,
    AnyHandler,
    AnyOf,
    Clear,
    Filter,
    FirstMatch,
    Give,
    Handler,
    Has,
    Mutation,
    Not,
    Periodic,
    SharedTag,
    Tagged,
    Transfer,
    VibeIs,
    Who,
)


class UnsupportedError(ConfigError):
    """The compiled simulator does not play this game; the message names the first field."""


class Names(NamedTuple):
    """What handlers refer to by name."""

    resources: Sequence[str]
    tags: Sequence[str]
    vibes: Sequence[str]
    limits: Mapping[str, tuple[str, ...]]  # resources of the limits of agents


_FIELDS = {  # allowed in a part of each type
    "resource": ("target", "resources"),
    "vibe": ("target", "vibe"),
    "tag": ("target", "tag"),
    "tag_prefix": ("target", "tag_prefix"),
    "shared_tag_prefix": ("tag_prefix",),
    "periodic": ("period", "start_on"),
    "not": ("inner",),
    "or": ("inner",),
    "resource_delta": ("target", "deltas"),
    "resource_transfer": ("from_target", "to_target", "resources", "remove_source_when_empty"),
    "clear_inventory": ("target", "limit_name"),
}


def read_handler(path: str, given: Any, names: Names) -> AnyHandler | None:
    """A handler as plain data, None if there is none; raises `UnsupportedError` with the path of the first field."""
    if given is None:
        return None
    kind = getattr(given, "handler_type", "handler")
    if kind in ("first_match", "all_of"):
        check_fields(path, given, ("handler_type", "handlers"))
        read = [read_handler(f"{path}.handlers[{i}]", child, names) for i, child in enumerate(given.handlers)]
        children = tuple(child for child in read if child is not None)
        if not children:
            return None
        return FirstMatch(children) if kind == "first_match" else AllOf(children)
    if kind != "handler":
        raise UnsupportedError(f"{path}.handler_type is {kind}")
    check_fields(path, given, ("name", "filters", "mutations"))
    filters = [_filter(f"{path}.filters[{i}]", part, names) for i, part in enumerate(given.filters)]
    mutations = [_mutation(f"{path}.mutations[{i}]", part, names) for i, part in enumerate(given.mutations)]
    return Handler(tuple(x for part in filters for x in part), tuple(x for part in mutations for x in part))


def _filter(path: str, part: Any, names: Names) -> tuple[Filter, ...]:
    """The filters of a part, all of which have to pass; none for names that the game does not have."""
    kind = _kind(path, part, "filter_type")
    if kind == "not":
        return (Not(_filter(f"{path}.inner", part.inner, names)),)
    if kind == "or":
        groups = [_filter(f"{path}.inner[{i}]", inner, names) for i, inner in enumerate(part.inner)]
        return (AnyOf(tuple(group for group in groups if group)),)
    if kind == "periodic":
        return (Periodic(part.period, part.period if part.start_on is None else part.start_on),)
    if kind == "resource":
        found = part.resources.items()
        return tuple(Has(_who(path, part.target), name, least) for name, least in found if name in names.resources)
    if kind == "vibe":
        return (VibeIs(_who(path, part.target), names.vibes.index(part.vibe)),) if part.vibe in names.vibes else ()
    if kind == "tag":
        return (Tagged(_who(path, part.target), (part.tag,)),) if part.tag in names.tags else ()
    tags = tuple(tag for tag in names.tags if tag.startswith(part.tag_prefix))
    if kind == "tag_prefix":
        return (Tagged(_who(path, part.target), tags),)
    assert kind == "shared_tag_prefix"
    return (SharedTag(tags),)


def _mutation(path: str, part: Any, names: Names) -> tuple[Mutation, ...]:
    kind = _kind(path, part, "mutation_type")
    if kind == "resource_delta":
        return tuple(Give(_who(path, part.target), *pair) for pair in part.deltas.items())
    if kind == "resource_transfer":
        if part.remove_source_when_empty:
            raise UnsupportedError(f"{path}.remove_source_when_empty is set")
        giver, receiver = _who(path, part.from_target), _who(path, part.to_target)
        return tuple(Transfer(giver, receiver, *pair) for pair in part.resources.items())
    assert kind == "clear_inventory"
    if part.limit_name not in names.limits:
        raise UnsupportedError(f"{path}.limit_name is {part.limit_name!r}, which is not a limit of an agent")
    return tuple(Clear(_who(path, part.target), name) for name in names.limits[part.limit_name])


def _who(path: str, given: Any) -> Who:
    if str(given) not in ("actor", "target"):
        raise UnsupportedError(f"{path} is of {given}, neither actor nor target")
    return "actor" if str(given) == "actor" else "target"


def _kind(path: str, part: Any, field: str) -> str:
    """The type of a filter or mutation, if it is supported and has no other fields than those that are read."""
    kind = str(getattr(part, field, type(part).__name__))
    if kind not in _FIELDS:
        raise UnsupportedError(f"{path}.{field} is {kind}")
    check_fields(path, part, (field, *_FIELDS[kind]))
    return kind


def check_fields(path: str, part: Any, allowed: Sequence[str]) -> None:
    """Raises `UnsupportedError` if a part of a configuration has other fields than those that are read."""
    if unknown := [name for name in type(part).model_fields if name not in allowed]:
        raise UnsupportedError(f"{path}.{unknown[0]} is set")
