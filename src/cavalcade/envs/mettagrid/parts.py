"""The parts of a step for one arena or one agent, as loops and GPU kernels run them. See `rules`."""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.mettagrid.mersenne import seed_words
from cavalcade.envs.mettagrid.rules import act, begin, cover, describe, look, pay

_NONE = np.uint32(0xFFFFFF)


@rule
def act_arena(e, state, tables, actions):
    """The actions of an arena."""
    state.step[e] += 1
    act(state, tables, actions, e)


@rule
def describe_agent(g, state, tables, visible, visible_count, reward, paid):
    """What others see of an agent, and its reward; paid: whether a step was taken."""
    agents = state.place.shape[1]
    e, a = g // agents, g % agents
    describe(state, tables, visible, visible_count, e, a)
    if paid:
        cover(state, tables, e, a)
        reward[g] = pay(state, tables, e, a)


@rule
def look_agent(g, state, tables, visible, visible_count, words, seen):
    """What an agent sees: the first K tokens, (G, K + 1) words, and how many there were."""
    agents, most = state.place.shape[1], words.shape[1] - 1
    count = look(state, tables, visible, visible_count, words, g, g // agents, g % agents)
    for i in range(count, min(max(seen[g], count + 1), most)):  # the rest of a longer one, and what `look` left behind
        words[g, i] = _NONE
    seen[g] = count


@rule
def begin_arena(i, arenas, grids, places, seeds, state, tables):
    """Begins the i-th of some episodes: its map, places of agents and random generator."""
    e = arenas[i]
    for cell in range(grids.shape[1]):
        state.grid[e, cell] = grids[i, cell]
    for a in range(places.shape[1]):
        state.place[e, a] = places[i, a]
    seed_words(state.words, state.position, e, seeds[i])
    begin(state, tables, e)
