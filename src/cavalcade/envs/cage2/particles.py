"""Particles of Blue's belief, by rejection: the loops over them that Python calls, on CPU threads.

A new particle is a random one of the step before, played on with Blue's action and fresh draws, and kept if Blue would
have seen what it saw. The rules are exact, so the particles are samples of the posterior, up to their number. Blue is
not told who attacks: particles begin with a random agent.
"""

import numba
import numpy as np

from cavalcade.core.jit import kernel, rule
from cavalcade.core.rng import GOLDEN, mix
from cavalcade.envs.cage2 import game
from cavalcade.envs.cage2.copying import copy_game
from cavalcade.envs.cage2.scenario import MIXED

ATTEMPTS = 64  # for each particle of a step, before another one is copied


@rule
def fresh_key(seed, counter):
    """A random key that is used once."""
    return mix(seed ^ mix(np.uint64(counter) * GOLDEN))


@rule
def attempt(s, p, seed, counter, first, source, target, count, action, table):
    """Plays a random particle on into slot `target`; returns whether Blue would have seen this table."""
    key = fresh_key(seed, counter)
    parent = np.int64((key >> np.uint64(32)) * np.uint64(count) >> np.uint64(32))
    copy_game(s, source + first + parent, target)
    s.key[target] = mix(key)
    game.step(s, p, target, action)
    return s.table[target] == table


@rule
def advance_game(e, s, p, seed, clock, count, attempts, source, goal, action, table):
    """New particles of game e; returns how many were found, 0 if no particle explains the table.

    Those that were not found are copies of others. If there is none at all, every particle is played on and the table
    corrected, so that what Blue sees stays true.
    """
    first, found = e * count, 0
    for i in range(2 * count):  # the second half only if no particle of the first explains the table
        if i == count and found:
            break
        for a in range(attempts if i < count else 1):
            counter = (clock * 2 * count + i) * attempts + a
            target = goal + first + (found if i < count else i - count)
            agrees = attempt(s, p, seed[e], counter, first, source, target, count, action, table)
            if i >= count:
                s.table[target] = table
            elif agrees:
                found += 1
                break
    if found:
        for i in range(found, count):
            copy_game(s, goal + first + i % found, goal + first + i)
    return found


@kernel
def advance_range(s, p, seed, clock, count, attempts, source, goal, actions, tables, found, start, stop):
    """New particles of games start … stop − 1."""
    for e in range(start, stop):
        action, table = np.int64(actions[e]), tables[e]
        found[e] = advance_game(e, s, p, seed, clock, count, attempts, source, goal, action, table)


@kernel(parallel=True)
def advance_threads(s, p, seed, clock, count, attempts, source, goal, actions, tables, found, threads):
    """New particles of all games, in one range per thread."""
    n = found.size
    for i in numba.prange(threads):
        advance_range(
            s, p, seed, clock, count, attempts, source, goal, actions, tables, found, i * n // threads,
            (i + 1) * n // threads,
        )  # fmt: skip


@rule
def begin_game(e, s, seed, source, count):
    """Begins the particles of game e: the state that Blue knows, and an agent that it does not."""
    for i in range(count):
        at = source + e * count + i
        s.key[at] = fresh_key(seed[e], -1 - i)
        s.episode[at] = 0
        s.red_setting[at] = MIXED
        game.begin(s, at)


@kernel
def begin_particles(s, seed, source, count):
    """Begins all particles."""
    for e in range(seed.size):
        begin_game(e, s, seed, source, count)
