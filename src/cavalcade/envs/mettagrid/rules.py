"""The rules of MettaGrid, for arena e and agent a; compiled for CPU and CUDA.

A step: agents act in a drawn order; then observations are written and rewards computed. Equal to the
engine of mettagrid 0.26.22 in every byte (`cavalcade verify mettagrid`).
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.mettagrid.mersenne import shuffle
from cavalcade.envs.mettagrid.programs import DONE, UNDONE
from cavalcade.envs.mettagrid.rewards import AMOUNT, CONSTANT, COUNT, DEPOSITED, GAINED, LOST
from cavalcade.envs.mettagrid.statistics import FAILED, FAR, INVALID, MOVED, NOOP, STILL, UNIQUE
from cavalcade.envs.mettagrid.tables import (
    AGENT,
    AGENT_ID,
    COMPLETION,
    EAST,
    FIRST_RESOURCE,
    GROUP,
    LAST_ACTION,
    LAST_REWARD,
    NORTH,
    NOWHERE,
    SOUTH,
    WEST,
)
from cavalcade.envs.mettagrid.using import holders, number_of, role_of, run


@rule
def move(state, tables, e, a, direction):
    """Moves an agent to a free cell; returns what is in the cell, 0 if the agent is there now."""
    here = np.int64(state.place[e, a])
    there = here + tables.moves[direction]
    code = np.int64(state.grid[e, there])
    if code == 0:
        state.grid[e, there] = state.grid[e, here]
        state.grid[e, here] = 0
        state.place[e, a] = there
    return code


@rule
def act(state, tables, actions, e):
    """The actions of an arena in a new random order, then what happens to agents in every step, by their number.

    There is one call of `run` for all of it: its code is inlined, and long.
    """
    shuffle(state.order, state.words, state.position, e)
    agents = state.order.shape[1]
    for a in range(state.before.shape[1]):
        state.before[e, a] = state.place[e, a]
    for turn in range(agents if tables.on_tick.shape[0] == 0 else 2 * agents):
        acting = turn < agents
        a = np.int64(state.order[e, turn]) if acting else turn - agents
        action, target, after = np.int64(0), np.int64(a), np.int64(UNDONE)
        if acting:
            action, row = np.int64(actions[e * agents + a]), np.int64(DONE)
            state.last[e, a] = 0
            if action < 0 or action >= tables.actions:
                state.counts[e, a, INVALID] += np.float32(2)  # counted in both of the original's passes
                continue
            if action > tables.moves.shape[0]:
                continue  # changes of vibe are not primary actions
            code = move(state, tables, e, a, action - 1) if action > 0 else np.int64(0)
            if code != 0:
                number, target = number_of(state, e, code), code - AGENT
                row = np.int64(tables.use[number])
                if tables.after_use.shape[0] > 0:
                    after = np.int64(tables.after_use[role_of(state, e, a), number])
        else:
            row = np.int64(tables.on_tick[role_of(state, e, a)])
        success, first = row == DONE, True
        if success:  # there was nothing to ask or to do
            row, first = after, False
        while row >= 0:
            applied = run(state, tables, e, a, target, row)
            row = after if applied and first else np.int64(UNDONE)
            if first:
                success, first = applied, False
        if acting:
            count_action(state, e, a, action, success)


@rule
def count_action(state, e, a, action, success):
    """Statistics of an action, and which one was executed."""
    if action == 0:
        state.counts[e, a, NOOP] += np.float32(1)
    elif success:
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
def describe(state, tables, visible, visible_count, e, h):
    """Writes the tokens that others see of an agent, or of an object that holds resources, without place."""
    role, count = role_of(state, e, h), 0
    for i in range(tables.first_role_token[role], tables.first_role_token[role + 1]):
        visible[e, h, count] = tables.role_tokens[i]
        count += 1
    for i in range(state.kinds[e, h]):
        resource = np.int64(state.held[e, h, i])
        amount = np.int64(state.inventory[e, h, resource])
        feature = FIRST_RESOURCE + resource * tables.digits
        while True:
            visible[e, h, count] = np.uint32(feature << 8 | amount % tables.base << 16)
            count += 1
            feature += 1
            amount //= tables.base
            if amount == 0:
                break
    if h < state.place.shape[1]:
        visible[e, h, count] = np.uint32(GROUP << 8 | tables.groups_of_agents[role] << 16)
        visible[e, h, count + 1] = np.uint32(AGENT_ID << 8 | (h & 255) << 16)
        count += 2
    visible_count[e, h] = count


@rule
def look(state, tables, visible, visible_count, lines, row, e, a):
    """Writes the tokens that an agent sees to a row of `lines` but for its last column, as many as fit.

    Returns their number, whether they fit or not.
    """
    count, here = look_inside(state, tables, lines, row, e, a), np.int64(state.place[e, a])
    if tables.blocker_offsets.shape[0] == 0:
        for k in range(tables.offsets.shape[0]):
            count = look_at(state, tables, visible, visible_count, lines, row, e, here, k, count)
        return count
    first = second = third = np.uint64(0)  # cells that something hides, a bit each
    for i in range(tables.blocker_offsets.shape[0]):
        if tables.blocks[number_of(state, e, np.int64(state.grid[e, here + tables.blocker_offsets[i]]))]:
            first |= tables.blocker_masks[i, 0]
            second |= tables.blocker_masks[i, 1]
            third |= tables.blocker_masks[i, 2]
    for k in range(tables.offsets.shape[0]):
        word = first if k < 64 else second if k < 128 else third
        if not word >> np.uint64(k & 63) & np.uint64(1):
            count = look_at(state, tables, visible, visible_count, lines, row, e, here, k, count)
    return count


@rule
def look_inside(state, tables, lines, row, e, a):
    """Writes the tokens of no place; returns their number."""
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
        moved = np.int64(state.place[e, a] != state.before[e, a])
        lines[row, min(count, room)] = np.uint32(NOWHERE | tables.moved_feature << 8 | moved << 16)
        count += 1
    if tables.shown[3]:
        lines[row, min(count, room)] = np.uint32(NOWHERE | LAST_REWARD << 8)
        count += 1
    if tables.shown[4]:
        place, spawn, stride = np.int64(state.place[e, a]), np.int64(state.spawn[e, a]), tables.stride
        east, south = place % stride - spawn % stride, place // stride - spawn // stride
        if east != 0:
            feature = EAST if east > 0 else WEST
            lines[row, min(count, room)] = np.uint32(NOWHERE | feature << 8 | min(abs(east), 255) << 16)
            count += 1
        if south != 0:
            feature = SOUTH if south > 0 else NORTH
            lines[row, min(count, room)] = np.uint32(NOWHERE | feature << 8 | min(abs(south), 255) << 16)
            count += 1
    return count


@rule
def look_at(state, tables, visible, visible_count, lines, row, e, here, k, count):
    """Writes the tokens of the k-th cell of the window around a cell; returns the number of all tokens so far."""
    room = lines.shape[1] - 1
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
    """The state of arena e before the first step; its map, roles and seeds are set."""
    state.step[e] = 0
    agents, resources = state.place.shape[1], state.inventory.shape[2]
    for h in range(holders(state, e)):
        role = role_of(state, e, h)
        for r in range(resources):
            state.inventory[e, h, r] = tables.initial[role, r]
        state.kinds[e, h] = tables.initial_kinds[role]
        for i in range(tables.initial_kinds[role]):
            state.held[e, h, i] = tables.initial_held[role, i]
    for a in range(agents):
        state.spawn[e, a] = state.noted[e, a] = state.place[e, a]
        state.last[e, a], state.still[e, a], state.total[e, a] = 0, 0, 0
        for r in range(resources):
            state.gained[e, a, r] = state.lost[e, a, r] = 0
        for r in range(state.deposited.shape[2]):
            state.deposited[e, a, r] = 0
        for k in range(state.worth.shape[2]):
            state.worth[e, a, k] = 0  # what an agent starts with is paid for in the first step
        for k in range(state.counts.shape[2]):
            state.counts[e, a, k] = 0
        for cell in range(state.visited.shape[2]):
            state.visited[e, a, cell] = 0
        if state.visited.shape[2] > 0:
            state.visited[e, a, state.place[e, a]] = 1
            state.counts[e, a, UNIQUE] = 1
    for a in range(state.before.shape[1]):
        state.before[e, a] = state.place[e, a]


@rule
def pay(state, tables, e, a):
    """The reward of an agent: for each entry its change, or its value in every step."""
    change = np.float32(0)
    role = role_of(state, e, a)
    first = np.int64(tables.first_reward[role])
    for k in range(first, tables.first_reward[role + 1]):
        if tables.reward_row[k] >= 0:
            value = tables.worth[tables.reward_row[k], np.int64(state.inventory[e, a, tables.reward_resource[k]])]
        else:
            value = worth_of(state, tables, e, a, k)
        if tables.per_tick[k]:
            change += value
        else:
            change += value - state.worth[e, a, k - first]
        state.worth[e, a, k - first] = value
    state.total[e, a] += change
    return change


@rule
def worth_of(state, tables, e, a, k):
    """The value of a reward of several terms, within its bounds."""
    value = np.float32(0)
    for i in range(tables.first_term[k], tables.first_term[k + 1]):
        source, index = tables.term_source[i], np.int64(tables.term_index[i])
        if source == CONSTANT:
            value += tables.term_weight[i]
            continue
        found = np.float32(0)
        if source == AMOUNT:
            found = np.float32(state.inventory[e, a, index])
        elif source == COUNT:
            found = state.counts[e, a, index]
        elif source == GAINED:
            found = state.gained[e, a, index]
        elif source == LOST:
            found = state.lost[e, a, index]
        elif source == DEPOSITED and state.deposited.shape[2] > 0:
            found = state.deposited[e, a, index]
        # The product is rounded on its own: in double precision it is exact, and nothing can be fused with the sum.
        value += np.float32(np.float64(found) * np.float64(tables.term_weight[i]))
    return min(max(value, tables.reward_least[k]), tables.reward_most[k])
