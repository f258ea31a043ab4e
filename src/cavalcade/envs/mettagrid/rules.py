"""The rules of MettaGrid, for arena e and agent a; compiled for CPU and CUDA.

A step: agents act in a drawn order; then observations are written and rewards computed. Equal to the
engine of mettagrid 0.26.22 in every byte (`cavalcade verify mettagrid`).
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.mettagrid.mersenne import shuffle
from cavalcade.envs.mettagrid.state import FAILED, FAR, INVALID, MOVED, NOOP, STILL, UNIQUE
from cavalcade.envs.mettagrid.tables import (
    AGENT,
    AGENT_ID,
    COMPLETION,
    FIRST_RESOURCE,
    GROUP,
    LAST_ACTION,
    LAST_REWARD,
    NOWHERE,
)


@rule
def give(state, tables, e, a, resource, delta):
    """Changes an amount within its limit; a resource that becomes held is shown first."""
    old = np.int64(state.inventory[e, a, resource])
    limit = np.int64(tables.limits[resource])
    if tables.shared[resource]:
        for other in range(tables.groups.shape[0]):
            if other != resource and tables.groups[other] == tables.groups[resource]:
                limit -= np.int64(state.inventory[e, a, other])
        limit = max(limit, 0)
    new = min(max(old + delta, 0), limit)
    if new == old:
        return
    state.inventory[e, a, resource] = new
    if new > old:
        state.gained[e, a, resource] += np.float32(new - old)
    else:
        state.lost[e, a, resource] += np.float32(old - new)
    count = np.int64(state.kinds[e, a])
    if old == 0:
        for i in range(count, 0, -1):
            state.held[e, a, i] = state.held[e, a, i - 1]
        state.held[e, a, 0] = resource
        state.kinds[e, a] = count + 1
    elif new == 0:
        i = 0
        while state.held[e, a, i] != resource:
            i += 1
        for j in range(i, count - 1):
            state.held[e, a, j] = state.held[e, a, j + 1]
        state.kinds[e, a] = count - 1


@rule
def use(state, tables, e, a, code):
    """Uses an object; returns whether its handler applied."""
    if not tables.usable[code]:
        return False
    for resource in range(tables.needs.shape[1]):
        if np.int64(state.inventory[e, a, resource]) < tables.needs[code, resource]:
            return False
    for i in range(tables.first_delta[code], tables.first_delta[code + 1]):
        give(state, tables, e, a, tables.delta_resource[i], np.int64(tables.delta_amount[i]))
    return True


@rule
def move(state, tables, e, a, direction):
    """Moves an agent to a free cell, or uses what is there; returns whether it succeeded."""
    here = np.int64(state.place[e, a])
    there = here + tables.moves[direction]
    code = np.int64(state.grid[e, there])
    if code == 0:
        state.grid[e, there] = state.grid[e, here]
        state.grid[e, here] = 0
        state.place[e, a] = there
        return True
    return use(state, tables, e, a, code)


@rule
def act(state, tables, actions, e):
    """The actions of an arena, in a new random order."""
    shuffle(state.order, state.words, state.position, e)
    agents = state.order.shape[1]
    for turn in range(agents):
        a = np.int64(state.order[e, turn])
        action = np.int64(actions[e * agents + a])
        state.last[e, a] = 0
        if action < 0 or action >= tables.actions:
            state.counts[e, a, INVALID] += np.float32(2)  # counted in both of the original's passes
            continue
        if action > tables.moves.shape[0]:
            continue  # changes of vibe are not primary actions
        if action == 0:
            state.counts[e, a, NOOP] += np.float32(1)
        elif move(state, tables, e, a, action - 1):
            state.counts[e, a, MOVED] += np.float32(1)
            state.last[e, a] = action
        else:
            state.counts[e, a, FAILED] += np.float32(1)
        place = state.place[e, a]
        if place == state.noted[e, a]:
            state.still[e, a] += 1
            state.counts[e, a, STILL] = max(state.counts[e, a, STILL], np.float32(state.still[e, a]))
        else:
            state.still[e, a] = 0
            state.noted[e, a] = place


@rule
def cover(state, tables, e, a):
    """Statistics of where an agent has been."""
    place, spawn = np.int64(state.place[e, a]), np.int64(state.spawn[e, a])
    stride = tables.stride
    far = abs(place // stride - spawn // stride) + abs(place % stride - spawn % stride)
    state.counts[e, a, FAR] = max(state.counts[e, a, FAR], np.float32(far))
    if state.visited.shape[2] > 0 and not state.visited[e, a, place]:
        state.visited[e, a, place] = 1
        state.counts[e, a, UNIQUE] += np.float32(1)


@rule
def describe(state, tables, visible, visible_count, e, a):
    """Writes the tokens that others see of an agent, without place."""
    count = tables.agent_tokens.shape[0]
    for i in range(count):
        visible[e, a, i] = tables.agent_tokens[i]
    for i in range(state.kinds[e, a]):
        resource = np.int64(state.held[e, a, i])
        amount = np.int64(state.inventory[e, a, resource])
        feature = FIRST_RESOURCE + resource * tables.digits
        while True:
            visible[e, a, count] = np.uint32(feature << 8 | amount % tables.base << 16)
            count += 1
            feature += 1
            amount //= tables.base
            if amount == 0:
                break
    visible[e, a, count] = np.uint32(GROUP << 8)
    visible[e, a, count + 1] = np.uint32(AGENT_ID << 8 | (a & 255) << 16)
    visible_count[e, a] = count + 2


@rule
def look(state, tables, visible, visible_count, lines, row, e, a):
    """Writes the tokens that an agent sees to a row of `lines` but for its last column, as many as fit.

    Returns their number, whether they fit or not.
    """
    room = lines.shape[1] - 1
    count = 0
    if tables.shown[0]:
        step, most = np.int64(state.step[e]), np.int64(tables.max_steps)
        share = 0 if most == 0 else 255 if step >= most else 256 * step // most
        lines[row, min(count, room)] = np.uint32(NOWHERE | COMPLETION << 8 | share << 16)
        count += 1
    if tables.shown[1]:
        lines[row, min(count, room)] = np.uint32(NOWHERE | LAST_ACTION << 8 | np.int64(state.last[e, a]) << 16)
        count += 1
    if tables.shown[2]:
        lines[row, min(count, room)] = np.uint32(NOWHERE | LAST_REWARD << 8)
        count += 1
    here = np.int64(state.place[e, a])
    for k in range(tables.offsets.shape[0]):
        code = np.int64(state.grid[e, here + tables.offsets[k]])
        place, number = tables.places[k], np.int64(tables.token_count[code])
        lines[row, min(count, room)] = tables.only_token[code] | place  # if there is none, the next overwrites it
        if number <= 1:
            count += number
        elif code < AGENT:
            for i in range(tables.first_token[code], tables.first_token[code] + number):
                lines[row, min(count, room)] = tables.object_tokens[i] | place
                count += 1
        else:
            for i in range(visible_count[e, code - AGENT]):
                lines[row, min(count, room)] = visible[e, code - AGENT, i] | place
                count += 1
    return count


@rule
def begin(state, tables, e):
    """The state of arena e before the first step; its map and seeds are set."""
    state.step[e] = 0
    agents, resources = state.inventory.shape[1], state.inventory.shape[2]
    for a in range(agents):
        state.spawn[e, a] = state.noted[e, a] = state.place[e, a]
        state.last[e, a], state.still[e, a], state.total[e, a] = 0, 0, 0
        for r in range(resources):
            state.inventory[e, a, r] = tables.initial[r]
            state.gained[e, a, r] = state.lost[e, a, r] = 0
        state.kinds[e, a] = tables.initial_held.shape[0]
        for i in range(tables.initial_held.shape[0]):
            state.held[e, a, i] = tables.initial_held[i]
        for k in range(state.worth.shape[2]):
            state.worth[e, a, k] = 0  # what an agent starts with is paid for in the first step
        for k in range(state.counts.shape[2]):
            state.counts[e, a, k] = 0
        for cell in range(state.visited.shape[2]):
            state.visited[e, a, cell] = 0
        if state.visited.shape[2] > 0:
            state.visited[e, a, state.place[e, a]] = 1
            state.counts[e, a, UNIQUE] = 1


@rule
def pay(state, tables, e, a):
    """The reward of an agent: for each entry its change, or its value in every step."""
    change = np.float32(0)
    for k in range(tables.worth.shape[0]):
        value = tables.worth[k, np.int64(state.inventory[e, a, tables.reward_resource[k]])]
        if tables.per_tick[k]:
            change += value
        else:
            change += value - state.worth[e, a, k]
        state.worth[e, a, k] = value
    state.total[e, a] += change
    return change
