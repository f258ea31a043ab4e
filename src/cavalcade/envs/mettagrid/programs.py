"""Handlers as programs: rows of numbers that `rules.run` executes, with a place to go on after yes and after no.

A program is built from its end: each part is given where to go on, and returns where it begins. What cannot change in a
game, tags and vibes, is decided here; only the actor's role is left to be asked.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
)

DONE, UNDONE = -1, -2  # ends of programs
HAS, IS_ROLE, PERIODIC, GIVE, TRANSFER, CLEAR = range(6)
ACTOR, TARGET = 0, 1
OP, WHO, OTHER, RESOURCE, AMOUNT, YES, NO = range(7)  # columns
_WHO = {"actor": ACTOR, "target": TARGET}


class Being(NamedTuple):
    """What filters can ask of an agent or an object."""

    tags: frozenset[str]
    vibe: int
    holds: bool = True  # whether it can hold resources


class Programs:
    """Collects the programs of a game. roles: those of agents."""

    def __init__(self, resources: Sequence[str], roles: Sequence[Being]):
        self._ids = {name: i for i, name in enumerate(resources)}
        self._roles = roles
        self._rows: list[tuple[int, ...]] = []
        self._sets: list[tuple[bool, ...]] = []

    def add(self, handler: AnyHandler | None, actors: Sequence[int], target: Being) -> int:
        """Where the program of a handler begins; actors: roles that may run it."""
        return UNDONE if handler is None else _Part(self, actors, target).any(handler, DONE, UNDONE)

    def row(self, *columns: int) -> int:
        """Adds a row and returns its number."""
        self._rows.append(columns)
        return len(self._rows) - 1

    def role_set(self, wanted: Callable[[Being], bool]) -> int:
        """The number of a set of agents' roles."""
        found = tuple(wanted(role) for role in self._roles)
        if found not in self._sets:
            self._sets.append(found)
        return self._sets.index(found)

    def resource(self, name: str) -> int:
        return self._ids[name]

    def being(self, role: int) -> Being:
        return self._roles[role]

    @property
    def table(self) -> NDArray[np.int32]:
        """All programs, (I, 7): an instruction a row."""
        return np.array(self._rows, np.int32).reshape(-1, 7)

    @property
    def role_sets(self) -> NDArray[np.bool_]:
        """Sets of roles, (sets, roles)."""
        return np.array(self._sets, np.bool_).reshape(-1, len(self._roles))


class _Part:
    """Builds one program; yes, no: rows at which it continues."""

    def __init__(self, programs: Programs, actors: Sequence[int], target: Being):
        self._programs, self._actors, self._target = programs, actors, target

    def any(self, handler: AnyHandler, yes: int, no: int) -> int:
        if isinstance(handler, Handler):
            for mutation in reversed(handler.mutations):
                yes = self._mutation(mutation, yes)
            return self._all(handler.filters, yes, no)
        if isinstance(handler, FirstMatch):
            for child in reversed(handler.handlers):
                no = self.any(child, yes, no)
            return no
        assert isinstance(handler, AllOf)
        for child in reversed(handler.handlers):  # `yes`: go on, something applied; `no`: go on, nothing did so far
            yes, no = self.any(child, yes, yes), self.any(child, yes, no)
        return no

    def _all(self, filters: Sequence[Filter], yes: int, no: int) -> int:
        for part in reversed(filters):
            yes = self._filter(part, yes, no)
        return yes

    def _filter(self, part: Filter, yes: int, no: int) -> int:
        if isinstance(part, Not):
            return self._all(part.filters, no, yes)
        if isinstance(part, AnyOf):
            for group in reversed(part.groups):
                no = self._all(group, yes, no)
            return no
        if isinstance(part, Periodic):
            return self._programs.row(PERIODIC, 0, 0, part.start, part.period, yes, no)
        if isinstance(part, Has):
            if part.who == "target" and not self._target.holds:
                return yes if part.amount <= 0 else no
            return self._programs.row(
                HAS, _WHO[part.who], 0, self._programs.resource(part.resource), part.amount, yes, no
            )
        return self._decided(part, yes, no)

    def _decided(self, part: VibeIs | Tagged | SharedTag, yes: int, no: int) -> int:
        """A filter that depends on the actor's role only, if on anything."""

        def passes(actor: Being) -> bool:
            if isinstance(part, SharedTag):
                return bool(actor.tags & self._target.tags & {*part.tags})
            asked = actor if part.who == "actor" else self._target
            return asked.vibe == part.vibe if isinstance(part, VibeIs) else bool(asked.tags & {*part.tags})

        found = {passes(self._programs.being(role)) for role in self._actors}
        if len(found) == 1:
            return yes if found.pop() else no
        return self._programs.row(IS_ROLE, ACTOR, 0, self._programs.role_set(passes), 0, yes, no)

    def _mutation(self, part: Mutation, then: int) -> int:
        resource, row = self._programs.resource(part.resource), self._programs.row
        if isinstance(part, Give):
            return row(GIVE, _WHO[part.who], 0, resource, part.amount, then, then)
        if isinstance(part, Transfer):
            return row(TRANSFER, _WHO[part.giver], _WHO[part.receiver], resource, part.amount, then, then)
        assert isinstance(part, Clear)
        return row(CLEAR, _WHO[part.who], 0, resource, 0, then, then)
