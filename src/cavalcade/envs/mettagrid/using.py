"""The rules of inventories and handlers, for arena e; compiled for CPU and CUDA.

What holds resources has a number h: agents first, then objects. Its cell has the code AGENT + h.
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.mettagrid.programs import (
    ACTOR,
    AMOUNT,
    CLEAR,
    DONE,
    HAS,
    IS_ROLE,
    NO,
    OP,
    OTHER,
    PERIODIC,
    RESOURCE,
    TRANSFER,
    WHO,
    YES,
)
from cavalcade.envs.mettagrid.tables import AGENT


@rule
def holders(state, e):
    """How many agents and objects hold resources."""
    return np.int64(state.things[e]) if state.things.shape[0] > 0 else state.place.shape[1]


@rule
def role_of(state, e, h):
    """The row of tables of an agent or an object that holds resources."""
    return np.int64(state.role[e, h]) if state.role.shape[1] > 0 else 0


@rule
def number_of(state, e, code):
    """What is in a cell, as tables know it."""
    return code if code < AGENT else AGENT + role_of(state, e, code - AGENT)


@rule
def limit_of(state, tables, e, h, resource):
    """What may be held of the resources of a group together."""
    role = role_of(state, e, h)
    limit = np.int64(tables.limits[role, resource])
    if tables.modifiers.shape[0] > 0:
        allowed = np.int64(0)
        for other in range(tables.modifiers.shape[2]):
            bonus = np.int64(tables.modifiers[role, resource, other])
            if bonus != 0:
                allowed += bonus * np.int64(state.inventory[e, h, other])
        limit = min(max(limit, allowed), np.int64(tables.most[role, resource]))
    return limit


@rule
def room_of(state, tables, e, h, resource):
    """The largest amount of a resource that its group has room for; may be below 0."""
    room, role = limit_of(state, tables, e, h, resource), role_of(state, e, h)
    if tables.shared[role, resource]:
        for other in range(tables.groups.shape[1]):
            if other != resource and tables.groups[role, other] == tables.groups[role, resource]:
                room -= np.int64(state.inventory[e, h, other])
    return room


@rule
def hold(state, e, h, resource, new):
    """Sets an amount; a resource that becomes held is shown first."""
    old = np.int64(state.inventory[e, h, resource])
    state.inventory[e, h, resource] = new
    if h < state.place.shape[1]:
        if new > old:
            state.gained[e, h, resource] += np.float32(new - old)
        else:
            state.lost[e, h, resource] += np.float32(old - new)
    count = np.int64(state.kinds[e, h])
    if old == 0:
        for i in range(count, 0, -1):
            state.held[e, h, i] = state.held[e, h, i - 1]
        state.held[e, h, 0] = resource
        state.kinds[e, h] = count + 1
    elif new == 0:
        i = 0
        while state.held[e, h, i] != resource:
            i += 1
        for j in range(i, count - 1):
            state.held[e, h, j] = state.held[e, h, j + 1]
        state.kinds[e, h] = count - 1


@rule
def give(state, tables, e, h, resource, delta):
    """Changes an amount within its limit; what a lost modifier made room for is dropped."""
    old = np.int64(state.inventory[e, h, resource])
    new = min(max(old + delta, 0), max(room_of(state, tables, e, h, resource), 0))
    lost = new < old and tables.modifying[role_of(state, e, h), resource]
    while new != old:
        hold(state, e, h, resource, new)
        new = old
        if lost:
            resource = first_excess(state, tables, e, h)
            if resource >= 0:  # cutting it may lower the limits of others
                old = np.int64(state.inventory[e, h, resource])
                new = max(room_of(state, tables, e, h, resource), 0)


@rule
def first_excess(state, tables, e, h):
    """A resource of which more is held than its limit allows, −1 if there is none."""
    for resource in range(state.inventory.shape[2]):
        if np.int64(state.inventory[e, h, resource]) > max(room_of(state, tables, e, h, resource), 0):
            return resource
    return -1


@rule
def run(state, tables, e, actor, target, row):
    """Runs a program from a row on; returns whether its handler applied."""
    program = tables.program
    while row >= 0:
        op, resource, amount = program[row, OP], np.int64(program[row, RESOURCE]), np.int64(program[row, AMOUNT])
        h = actor if program[row, WHO] == ACTOR else target
        passed = True
        if op == HAS:
            passed = np.int64(state.inventory[e, h, resource]) >= amount
        elif op == IS_ROLE:
            passed = tables.role_sets[resource, role_of(state, e, h)]
        elif op == PERIODIC:
            late = np.int64(state.step[e]) - resource
            passed = late >= 0 and late % amount == 0
        else:
            other = actor if program[row, OTHER] == ACTOR else target
            change(state, tables, e, h, other, op, resource, amount)
        row = np.int64(program[row, YES] if passed else program[row, NO])
    return row == DONE


@rule
def change(state, tables, e, h, other, op, resource, amount):
    """A mutation of what h holds, and `other` in a transfer."""
    there = np.int64(state.inventory[e, h, resource])
    delta, parts = amount, 1
    if op == CLEAR:
        delta = -there
    elif op == TRANSFER:
        wanted = there if amount < 0 else amount
        free = room_of(state, tables, e, other, resource) - np.int64(state.inventory[e, other, resource])
        delta = -min(there, wanted, max(free, 0))
        parts = 2 if wanted > 0 else 0
        if delta < 0 and h < state.place.shape[1]:
            state.deposited[e, h, resource] -= np.float32(delta)
    for part in range(parts):
        give(state, tables, e, h if part == 0 else other, resource, delta if part == 0 else -delta)
