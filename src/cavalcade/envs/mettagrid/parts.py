"""The parts of a step for one arena or one agent, as loops and GPU kernels run them. See `rules`."""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.mettagrid.mersenne import seed_words
from cavalcade.envs.mettagrid.rules import act, begin, cover, describe, look, pay
from cavalcade.envs.mettagrid.using import holders

_NONE = np.uint32(0xFFFFFF)


@rule
def act_arena(e, state, tables, actions):
    """The actions of an arena."""
    state.step[e] += 1
    act(state, tables, actions, e)


@rule
def describe_holder(g, state, tables, visible, visible_count, reward, paid):
    """What others see of an agent or an object that holds resources; an agent's reward if a step was taken (paid)."""
    most, agents = state.kinds.shape[1], state.place.shape[1]
    e, h = g // most, g % most
    if h < holders(state, e):
        describe(state, tables, visible, visible_count, e, h)
    if paid and h < agents:
        cover(state, tables, e, h)
        reward[e * agents + h] = pay(state, tables, e, h)


@rule
def look_agent(g, state, tables, visible, visible_count, words, seen):
    """What an agent sees: the first K tokens, (G, K + 1) words, and how many there were."""
    agents, most = state.place.shape[1], words.shape[1] - 1
    count = look(state, tables, visible, visible_count, words, g, g // agents, g % agents)
    for i in range(count, min(max(seen[g], count + 1), most)):  # the rest of a longer one, and what `look` left behind
        words[g, i] = _NONE
    seen[g] = count


@rule
def begin_arena(i, arenas, grids, places, roles, things, seeds, state, tables):
    """Begins the i-th of some episodes: its map, agents, objects and random generator."""
    e = arenas[i]
    for cell in range(grids.shape[1]):
        state.grid[e, cell] = grids[i, cell]
    for a in range(places.shape[1]):
        state.place[e, a] = places[i, a]
    for h in range(state.role.shape[1]):
        state.role[e, h] = roles[i, h]
    if state.things.shape[0] > 0:
        state.things[e] = things[i]
    seed_words(state.words, state.position, e, seeds[i])
    begin(state, tables, e)
