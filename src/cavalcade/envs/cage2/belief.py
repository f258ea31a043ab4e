"""Blue's belief: what the hidden state of each game may be, given what Blue did and saw. Particles, by rejection.

A new particle is a random one of the step before, played on with Blue's action and fresh draws, and kept if Blue would
have seen what it saw. The rules are exact, so the particles are samples of the posterior, up to their number. Blue is
not told who attacks: particles begin with a random agent.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import SavedState
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.jit import all_threads, kernel, rule
from cavalcade.core.rng import GOLDEN, mix
from cavalcade.envs.cage2 import cpu, game
from cavalcade.envs.cage2.copying import copy_game
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import MIXED, NUM_HOSTS, OWN
from cavalcade.envs.cage2.state import GAME_FIELDS, WIDTHS, State, allocate, host_bits

ATTEMPTS = 64  # for each particle of a step, before another one is copied
_STREAM = np.uint64(4)  # of draws that no other stream has


class Marginals(NamedTuple):
    """Probabilities of what Blue would like to know."""

    user: NDArray[np.float32]  # (N, 13): Red has no more than a user-level session on the host
    privileged: NDArray[np.float32]  # (N, 13): Red is root or SYSTEM there
    agent: NDArray[np.float32]  # (N, 3): it is sleep, bline, meander that attacks


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


@kernel
def begin_particles(s, seed, source, count):
    """Begins all particles: the state that Blue knows, and an agent that it does not."""
    for e in range(seed.size):
        for i in range(count):
            at = source + e * count + i
            s.key[at] = fresh_key(seed[e], -1 - i)
            s.episode[at] = 0
            s.red_setting[at] = MIXED
            game.begin(s, at)


class Belief:
    """Particles of N games that begin together.

    Args:
        env: whose games are followed: their rules and observation extras; their hidden state is never read.
        particles: per game (M).
        seed: of the particles' draws.
    """

    def __init__(self, env: Cage2, particles: int = 256, *, seed: int = 0):
        self.num_envs, self.particles = env.spec.num_envs, at_least("particles", particles, 1)
        if (env.state.red_setting >= OWN).any():
            raise ConfigError("the Red is user-defined; beliefs are over the agents of the challenge")
        self.params = env.params._replace(autoreset=0)
        self._threads = env.threads
        size = self.num_envs * self.particles
        self.state: State = allocate(2 * size)  # particles of this step and of the step before
        self._source, self._goal = 0, size
        self._seed = np.zeros(self.num_envs, np.uint64)
        indices = np.arange(self.num_envs, dtype=np.uint64)
        cpu.derive_keys(_STREAM, np.full(self.num_envs, seed, np.uint64), indices, self._seed)
        self.found = np.zeros(self.num_envs, np.int64)  # particles of the latest step that are no copies
        self.reset()

    def reset(self) -> None:
        """Begins all games."""
        self._clock, self.lost = 0, 0
        begin_particles(self.state, self._seed, self._source, self.particles)

    def update(self, actions: ArrayLike, tables: NDArray[np.int64]) -> None:
        """Takes in a step: Blue's actions (N,) and the tables (N,) that it saw afterwards, `Cage2.words[:, 0]`."""
        threads = min(self._threads, all_threads(), self.num_envs)
        given = (
            self.state, self.params, self._seed, self._clock, self.particles, ATTEMPTS, self._source, self._goal,
            np.asarray(actions, np.int32), np.ascontiguousarray(tables), self.found,
        )  # fmt: skip
        if threads > 1:
            advance_threads(*given, threads)
        else:
            advance_range(*given, 0, self.num_envs)
        self._clock += 1
        self.lost += int((self.found == 0).sum())
        self._source, self._goal = self._goal, self._source

    def save(self, particles: NDArray[np.int64]) -> SavedState:
        """Some particles as a saved state that `Cage2.load_state` takes; particle i of game e is e · M + i."""
        rows, fields = particles + self._source, {}
        for name in GAME_FIELDS:
            field = getattr(self.state, name)
            fields[name] = field.reshape(-1, WIDTHS[name])[rows] if name in WIDTHS else field[rows]
        return fields

    def marginals(self) -> Marginals:
        """Probabilities by host and of the agent."""
        s, shape = self.state, (self.num_envs, self.particles)
        rows = slice(self._source, self._source + self.num_envs * self.particles)

        def share(sets: NDArray) -> NDArray[np.float32]:
            return host_bits(sets).reshape(*shape, NUM_HOSTS).mean(axis=1, dtype=np.float32)

        privileged = s.privileged[rows]
        agents = s.red[rows].reshape(shape)
        who = np.stack([(agents == i).mean(axis=1, dtype=np.float32) for i in range(MIXED)], axis=1)
        return Marginals(share((s.user[rows] | s.flagged[rows]) & ~privileged), share(privileged), who)
