"""Blue's belief as an observation extra: how likely Red holds each host, and who attacks, as bits.

Every game has particles (`particles`), which follow Blue's actions and tables and nothing else. Their draws are a hash
of the game's key, episode and step, so that games continue, clone and resume exactly, however a batch is split.
"""

from collections.abc import Mapping

import numba
import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import SavedState
from cavalcade.core.errors import StateError
from cavalcade.core.jit import all_threads, kernel, rule
from cavalcade.core.rng import mix, step_key
from cavalcade.envs.cage2 import observe
from cavalcade.envs.cage2.game import Outputs, Params
from cavalcade.envs.cage2.particles import ATTEMPTS, advance_game, begin_game
from cavalcade.envs.cage2.scenario import MIXED, NUM_HOSTS
from cavalcade.envs.cage2.state import GAME_FIELDS, WIDTHS, State, allocate, check_saved

PARTICLES = 32  # per game
_SHARES = np.array([2, 8, 16, 28], np.int64)  # particles of 32 from which each bit is set
_SALT = np.uint64(0xB5297A4D3F84D5B5)  # draws of particles are not those of the games
_FIELD = "belief_"  # prefix of the particles in a saved state


@rule
def level(count):
    """How many particles agree, as a thermometer."""
    bits = 0
    for i in range(observe.LEVELS):
        if count >= _SHARES[i]:
            bits |= 1 << i
    return bits


@rule
def write_belief(s, first, words, e, w):
    """The belief of the particles from `first` on, into row e from column w on."""
    user, privileged, agent = 0, 0, 0
    for host in range(NUM_HOSTS):
        some, full = 0, 0
        for i in range(first, first + PARTICLES):
            held = np.int64(s.privileged[i]) >> host & 1
            full += held
            some += (np.int64(s.user[i]) | np.int64(s.flagged[i])) >> host & 1 & ~held
        user |= level(some) << observe.LEVELS * host
        privileged |= level(full) << observe.LEVELS * host
    for kind in range(MIXED):
        count = 0
        for i in range(first, first + PARTICLES):
            count += s.red[i] == kind
        agent |= level(count) << observe.LEVELS * kind
    words[e, w], words[e, w + 1], words[e, w + 2] = user, privileged, agent


@rule
def show_game(e, s, p, source, w, words, values):
    """Writes the belief about game e and the values of its observation."""
    write_belief(s, source + e * PARTICLES, words, e, w)
    observe.write_values(p, e, words, values)


@rule
def follow_game(e, g, s, p, seed, source, goal, w, action, out):
    """Takes in the step that game e has just made; g: the games, s: their particles."""
    again = out.truncated[e] and p.autoreset
    words, values, episode, step = out.words, out.values, np.int64(g.episode[e]), np.int64(g.step[e])
    if again:
        words, values, episode, step = out.final_words, out.final_values, episode - 1, p.horizon
    salted = mix(g.key[e] ^ _SALT)
    seed[e] = step_key(salted, episode, step)
    advance_game(e, s, p, seed, 0, PARTICLES, ATTEMPTS, source, goal, action, words[e, 0])
    show_game(e, s, p, goal, w, words, values)
    if again:
        seed[e] = step_key(salted, g.episode[e], 0)
        begin_game(e, s, seed, goal, PARTICLES)
        show_game(e, s, p, goal, w, out.words, out.values)


@kernel
def follow_range(g, s, p, seed, source, goal, w, actions, out, start, stop):
    """Takes in a step of games start … stop − 1."""
    for e in range(start, stop):
        follow_game(e, g, s, p, seed, source, goal, w, np.int64(actions[e]), out)


@kernel(parallel=True)
def follow_threads(g, s, p, seed, source, goal, w, actions, out, threads):
    """Takes in a step of all games, in one range per thread."""
    n = actions.size
    for i in numba.prange(threads):
        follow_range(g, s, p, seed, source, goal, w, actions, out, i * n // threads, (i + 1) * n // threads)


@kernel
def begin_games(g, s, seed, source, environments):
    """Begins the particles of the given games."""
    for e in environments:
        seed[e] = step_key(mix(g.key[e] ^ _SALT), g.episode[e], g.step[e])
        begin_game(e, s, seed, source, PARTICLES)


@kernel
def show_games(s, p, source, w, out, environments):
    """Writes the beliefs about the given games into their observations."""
    for e in environments:
        show_game(e, s, p, source, w, out.words, out.values)


class ObservedBelief:
    """Particles of N games of a batch.

    Args:
        num_envs: games in the batch (N).
        params: their rules and observation extras.
    """

    def __init__(self, num_envs: int, params: Params):
        self._num_envs, self._params = num_envs, params
        size = num_envs * PARTICLES
        self._particles: State = allocate(2 * size)  # of this step and of the step before
        self._source, self._goal = 0, size
        self._seed = np.zeros(num_envs, np.uint64)
        self._column = observe.num_words(params.extras & (observe.BELIEF - 1))

    def begin(self, games: State, rows: NDArray[np.int64]) -> None:
        """Begins the particles of games that have begun."""
        begin_games(games, self._particles, self._seed, self._source, rows)

    def show(self, out: Outputs, rows: NDArray[np.int64]) -> None:
        """Completes observations."""
        show_games(self._particles, self._params, self._source, self._column, out, rows)

    def follow(self, games: State, actions: NDArray[np.int32], out: Outputs, threads: int) -> None:
        """Takes in the latest step of all games, and completes its observations."""
        threads = min(threads, all_threads(), self._num_envs)
        given = (
            games, self._particles, self._params, self._seed, self._source, self._goal, self._column, actions, out,
        )  # fmt: skip
        if threads > 1:
            follow_threads(*given, threads)
        else:
            follow_range(*given, 0, self._num_envs)
        self._source, self._goal = self._goal, self._source

    def save(self, rows: NDArray[np.int64]) -> SavedState:
        """The particles of some games, one row each."""
        return {_FIELD + name: self._by_game(name)[rows].copy() for name in GAME_FIELDS}

    def check(self, saved: Mapping[str, NDArray], games: int) -> None:
        """Raises `StateError` unless a saved state has the particles of so many games."""
        found = {}
        for name in GAME_FIELDS:
            array, width = np.asarray(saved.get(_FIELD + name, ())), PARTICLES * WIDTHS.get(name, 1)
            if array.shape != (games, width):
                raise StateError(f"the saved state has no {_FIELD + name} ({games}, {width}); its games have no belief")
            found[name] = array.reshape(games * PARTICLES, *([WIDTHS[name]] if name in WIDTHS else []))
        check_saved(found, games * PARTICLES)

    def load(self, saved: Mapping[str, NDArray], rows: NDArray[np.int64]) -> None:
        """Loads the particles of some games."""
        for name in GAME_FIELDS:
            self._by_game(name)[rows] = saved[_FIELD + name]

    def _by_game(self, name: str) -> NDArray:
        """A view of a field of the particles, one row per game."""
        width = WIDTHS.get(name, 1)
        rows = slice(self._source * width, (self._source + self._num_envs * PARTICLES) * width)
        return getattr(self._particles, name)[rows].reshape(self._num_envs, -1)
