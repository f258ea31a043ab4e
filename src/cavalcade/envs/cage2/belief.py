"""Blue's belief: what the hidden state of each game may be, given what Blue did and saw. Particles (`particles`)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import SavedState
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.jit import all_threads
from cavalcade.envs.cage2 import cpu
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.particles import ATTEMPTS, advance_range, advance_threads, begin_particles
from cavalcade.envs.cage2.scenario import MIXED, NUM_HOSTS, OWN
from cavalcade.envs.cage2.state import GAME_FIELDS, WIDTHS, State, allocate, host_bits

_STREAM = np.uint64(4)  # of draws that no other stream has


class Marginals(NamedTuple):
    """Probabilities of what Blue would like to know."""

    user: NDArray[np.float32]  # (N, 13): Red has no more than a user-level session on the host
    privileged: NDArray[np.float32]  # (N, 13): Red is root or SYSTEM there
    agent: NDArray[np.float32]  # (N, 3): it is sleep, bline, meander that attacks


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
