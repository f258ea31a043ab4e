"""What happens when an agent uses an object, or in every step: filters and mutations as plain data.

The actor is the agent; the target is what it uses, or the agent itself in `on_tick`.
"""

from dataclasses import dataclass
from typing import Literal

Who = Literal["actor", "target"]


@dataclass(frozen=True)
class Has:
    """At least so much of a resource is held."""

    who: Who
    resource: str
    amount: int


@dataclass(frozen=True)
class VibeIs:
    who: Who
    vibe: int


@dataclass(frozen=True)
class Tagged:
    """At least one of the tags is there."""

    who: Who
    tags: tuple[str, ...]


@dataclass(frozen=True)
class SharedTag:
    """Actor and target have at least one of the tags in common."""

    tags: tuple[str, ...]


@dataclass(frozen=True)
class Periodic:
    """Every `period` steps, at first in step `start`."""

    period: int
    start: int


@dataclass(frozen=True)
class Not:
    """Not all of the filters pass."""

    filters: "tuple[Filter, ...]"


@dataclass(frozen=True)
class AnyOf:
    """At least one group of filters passes as a whole."""

    groups: "tuple[tuple[Filter, ...], ...]"


Filter = Has | VibeIs | Tagged | SharedTag | Periodic | Not | AnyOf


@dataclass(frozen=True)
class Give:
    """Changes an amount, within limits."""

    who: Who
    resource: str
    amount: int


@dataclass(frozen=True)
class Transfer:
    """Moves up to so much of a resource to `receiver`, as far as there is room; all of it if the amount is negative."""

    giver: Who
    receiver: Who
    resource: str
    amount: int


@dataclass(frozen=True)
class Clear:
    """Sets an amount to zero."""

    who: Who
    resource: str


Mutation = Give | Transfer | Clear


@dataclass(frozen=True)
class Handler:
    """If all filters pass, all mutations are made, in this order."""

    filters: tuple[Filter, ...] = ()
    mutations: tuple[Mutation, ...] = ()


@dataclass(frozen=True)
class FirstMatch:
    """Tries handlers in order until one applies."""

    handlers: "tuple[AnyHandler, ...]"


@dataclass(frozen=True)
class AllOf:
    """Tries all handlers; applies if one of them did."""

    handlers: "tuple[AnyHandler, ...]"


AnyHandler = Handler | FirstMatch | AllOf


def use(needs: dict[str, int], deltas: dict[str, int]) -> Handler:
    """An agent that holds `needs` gets `deltas`."""
    return Handler(
        tuple(Has("actor", name, amount) for name, amount in needs.items()),
        tuple(Give("actor", name, amount) for name, amount in deltas.items()),
    )


def mutations_of(handler: AnyHandler | None) -> tuple[Mutation, ...]:
    """All mutations that a handler may make."""
    if handler is None:
        return ()
    if isinstance(handler, Handler):
        return handler.mutations
    return tuple(mutation for child in handler.handlers for mutation in mutations_of(child))


def touches_target(handler: AnyHandler | None) -> bool:
    """Whether a handler may change what its target holds."""
    return any(
        "target" in ((m.giver, m.receiver) if isinstance(m, Transfer) else (m.who,)) for m in mutations_of(handler)
    )
