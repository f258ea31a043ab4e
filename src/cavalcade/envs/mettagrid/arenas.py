"""MettaGrid compiled: a batch of arenas in this process, behind the buffers of `core.contract`. A row is an agent."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import Buffers, Environment, EnvSpec, SavedState, checked_actions
from cavalcade.core.errors import ActionError, ConfigError, StateError, at_least
from cavalcade.core.jit import all_threads
from cavalcade.envs.mettagrid import cpu
from cavalcade.envs.mettagrid.game import Game
from cavalcade.envs.mettagrid.maps import Maps, Opening
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.state import AGENT_FIELDS, State, allocate, check_state, statistic
from cavalcade.envs.mettagrid.statistics import COUNTS, UNIQUE, uncounted
from cavalcade.envs.mettagrid.tables import tables_of

_END = 255


class Arenas(Environment):
    """Arenas of a game, equal to those that the mettagrid package plays for the same seeds and actions.

    Args:
        game: to be played.
        num_envs: rows, a multiple of the agents of an arena.
        seed: of the arenas; several take equal shares of them.
        stats: statistics of each agent's episode, by their names in the package; `uncounted` says which are missing.
        first_index: row of the first agent in a larger batch.
        threads: maximum number of threads; 0 for all.
    """

    def __init__(
        self,
        game: Game,
        num_envs: int,
        *,
        seed: int | Sequence[int] = 0,
        stats: Sequence[str] = (),
        first_index: int = 0,
        threads: int = 0,
    ):
        if at_least("num_envs", num_envs, 1) % game.agents:
            raise ConfigError(f"num_envs is {num_envs}; arenas have {game.agents} agents, take a multiple of that")
        self.game, self._first_index = game, at_least("first_index", first_index, 0)
        self.threads = at_least("threads", threads, 0) or all_threads()
        self._maps = Maps(game)
        self.tables = tables_of(game, self._maps.height, self._maps.width)
        if missing := uncounted(game.resources, stats):
            raise ConfigError(f"statistic {missing!r} is not counted by the compiled simulator")
        self.episode_stat_names = tuple(stats)
        rewarded = [term.name for role in game.roles for entry in role.rewards for term in entry.terms]
        self._visits = COUNTS[UNIQUE] in (*stats, *rewarded)
        self._allocate(num_envs // game.agents)
        self._seed(seed)

    @property
    def arenas(self) -> int:
        """Number of arenas, N."""
        return len(self.state.step)

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode in all or the given rows' arenas; with a seed, the first episode of that seed."""
        if indices is not None and (seed is not None or not self.begun):
            raise StateError("reset was given indices; the first reset, or one with a seed, is for all of them")
        if seed is not None:
            self._seed(seed)
        arenas = np.arange(self.arenas) if indices is None else np.unique(np.asarray(indices) // self.game.agents)
        self._begin(arenas)
        self._clear(arenas)
        self.begun = True
        return self.buffers

    def _clear(self, arenas: NDArray[np.int64]) -> None:
        """Clears rewards and ends of the latest step."""
        rows, b = self.rows_of(arenas), self.buffers
        b.truncated[rows] = False
        b.final_observation[rows] = 0
        b.reward[rows] = 0

    def send(self, actions: ArrayLike) -> None:
        """Stores one action per agent; nothing changes if one is out of range."""
        if not self.begun:
            raise StateError("step before the first reset; call reset() once")
        array = checked_actions(actions, self.spec.num_envs)
        if array.min() < 0 or array.max() >= self.game.actions:
            wrong = int(np.flatnonzero((array < 0) | (array >= self.game.actions))[0])
            raise ActionError(
                f"action {array[wrong]} of agent {wrong} is out of range; it must be from 0 to {self.game.actions - 1}"
            )
        self._actions[:] = array
        self._sent = True

    def recv(self) -> Buffers:
        """Steps every arena with the actions sent; at the time limit, the next episode begins."""
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        self._sent = False
        self._step()
        return self.buffers

    def _step(self) -> None:
        out = self._outputs
        cpu.step(self.state, self.tables, self._actions, out, self._parts)
        if self._ended.any():
            self.buffers.truncated[:] = False
            self._ended[:] = False
        self._check_overflow()
        if out.over.any():
            self._end(np.flatnonzero(out.over))

    def _end(self, arenas: NDArray[np.int64]) -> None:
        """Writes final observations and statistics of episodes and begins the next."""
        rows, b = self.rows_of(arenas), self.buffers
        b.final_observation[rows] = b.observation[rows]
        b.truncated[rows] = True
        self._ended[arenas] = True
        if self.episode_stat_names:
            self.episode_stats[rows] = self.statistics_of(arenas)
        self._begin(arenas)

    def statistics_of(self, arenas: NDArray[np.int64]) -> NDArray[np.float64]:
        """Statistics of the agents of arenas so far, (rows, F)."""
        found = [statistic(self.state, self.game, name) for name in self.episode_stat_names]
        return np.stack([x[arenas].ravel() for x in found if x is not None], axis=1).astype(np.float64)

    def _begin(self, arenas: NDArray[np.int64]) -> None:
        """Begins episodes; maps and random streams depend on (seed, row of the first agent, episode number)."""
        s = self.state
        s.episode[arenas] += 1
        own = np.zeros(len(arenas), np.int64)
        for i, e in enumerate(arenas):
            opening = self.opening_of(int(e), int(s.episode[e]))
            s.grid[e], s.place[e], own[i] = opening.grid, opening.places, opening.seed
            if s.role.size:
                s.role[e] = opening.roles
            if s.things.size:
                s.things[e] = opening.things
        cpu.start(s, self.tables, arenas, own)
        self._show(arenas)

    def opening_of(self, e: int, episode: int) -> Opening:
        """The map of an episode and the seed of its random generator."""
        map_seed, own = episode_seeds(int(self.state.seed[e]), int(self.state.index[e]), episode)
        return self._maps.open(map_seed, self.tables.margin, own)

    def _show(self, arenas: NDArray[np.int64]) -> None:
        """Writes the observations of some arenas to the buffers."""
        wanted = np.zeros(self.arenas, np.bool_)
        wanted[arenas] = True
        cpu.show(self.state, self.tables, wanted, self._outputs, self._parts)
        self._check_overflow()

    def _check_overflow(self) -> None:
        overflow = self._outputs.overflow
        if overflow.any():
            e = int(np.flatnonzero(overflow)[0])
            most = int(overflow[e])
            overflow[:] = 0
            raise ConfigError(
                f"arena {e}, step {self.state.step[e]}: an observation of {most} tokens does not fit into "
                f"{self.game.tokens}; raise num_tokens"
            )

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """A copy of the games; fields of whole arenas are cut into equal parts, one for each agent's row."""
        arenas = self._arenas_of(indices)
        return {name: _by_row(getattr(self.state, name)[arenas], name, self.game.agents) for name in self._fields}

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Loads saved games into all or the given rows; nothing changes if they do not fit."""
        arenas = self._arenas_of(indices)
        if indices is not None and not self.begun:
            raise StateError("load_state with indices before the first reset; call reset() once")
        found = self.state._asdict()
        for name in self._fields:
            like = getattr(self.state, name)[arenas]
            if name not in saved:
                raise StateError(f"{name} of the saved arenas is missing")
            found[name] = _from_rows(np.asarray(saved[name]), like, name, self.game.agents)
        check_state(State(**found), self.tables, self.game)
        for name in self._fields:
            getattr(self.state, name)[arenas] = found[name]
        self.begun = True
        self._clear(arenas)
        self._show(arenas)

    def clone(self, indices: ArrayLike | None = None) -> Self:
        """An independent batch that continues from these games."""
        saved = self.save_state(indices)
        other = copy(self)
        other._allocate(len(saved["place"]) // self.game.agents)
        other.load_state(saved)
        return other

    def _allocate(self, arenas: int) -> None:
        game, rows = self.game, arenas * self.game.agents
        self.state = allocate(game, self.tables, arenas, visited=self._visits)
        self._fields = [name for name in State._fields if getattr(self.state, name).size]
        width = 3 * game.tokens
        self._parts = min(self.threads, arenas)
        observation = np.full((rows, width), _END, np.uint8)
        self._outputs = cpu.Outputs(
            observation=observation,
            by_four=observation.view(np.uint32) if width % 4 == 0 else np.zeros((0, 0), np.uint32),
            length=np.zeros(rows, np.int32),
            reward=np.zeros(rows, np.float32),
            over=np.zeros(arenas, np.bool_),
            overflow=np.zeros(arenas, np.int32),
            visible=np.zeros((*self.state.kinds.shape, self.tables.visible), np.uint32),
            visible_count=np.zeros(self.state.kinds.shape, np.int32),
            lines=np.zeros((self._parts, game.tokens + 1), np.uint32),
        )
        self.buffers = Buffers(
            observation=self._outputs.observation,
            reward=self._outputs.reward,
            terminated=np.zeros(rows, np.bool_),
            truncated=np.zeros(rows, np.bool_),
            final_observation=np.zeros((rows, width), np.uint8),
            action_mask=np.ones((rows, game.actions), np.bool_),
        )
        self.episode_stats: NDArray[np.float64] = np.zeros((rows, len(self.episode_stat_names)))
        self.spec = EnvSpec("mettagrid", rows, Box(0, 255, (width,), np.uint8), Discrete(game.actions))
        self._actions = np.zeros(rows, np.int32)
        self._ended = np.zeros(arenas, np.bool_)  # in the latest step
        self.begun = self._sent = False

    def _seed(self, seed: int | Sequence[int]) -> None:
        """Sets the seeds; each takes an equal share of the arenas."""
        seeds, s, n = np.atleast_1d(np.asarray(seed)), self.state, self.arenas
        if seeds.ndim != 1 or seeds.dtype.kind not in "iu" or (seeds < 0).any() or n % len(seeds):
            raise ConfigError(f"seed is {seed!r}; it must be a whole number from 0 on, or several that divide {n}")
        share = n // len(seeds)
        s.seed[:] = np.repeat(seeds, share)
        s.index[:] = self._first_index + self.game.agents * np.tile(np.arange(share), len(seeds))
        s.episode[:] = 0

    def rows_of(self, arenas: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of the agents of arenas."""
        agents = self.game.agents
        return (arenas[:, None] * agents + np.arange(agents)).ravel()

    def _arenas_of(self, indices: ArrayLike | None) -> NDArray[np.int64]:
        """The arenas of rows, which must be whole."""
        if indices is None:
            return np.arange(self.arenas)
        rows, agents = np.asarray(indices), self.game.agents
        arenas = rows[::agents] // agents
        if len(rows) % agents or not (self.rows_of(arenas) == rows).all():
            raise StateError(f"rows of an arena stay together: give all {agents} of them, in order")
        return arenas


def _by_row(field: NDArray, name: str, agents: int) -> NDArray:
    """A field with one row for each agent: (N, A, …) → (N·A, …); fields of arenas as bytes, (N·A, B)."""
    if name in AGENT_FIELDS and field.shape[1] == agents:
        return field.reshape(-1, *field.shape[2:]).copy()
    flat = np.ascontiguousarray(field).reshape(len(field), -1).view(np.uint8)
    width = -(-flat.shape[1] // agents)
    padded = np.zeros((len(flat), width * agents), np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.reshape(-1, width)


def _from_rows(rows: NDArray, like: NDArray, name: str, agents: int) -> NDArray:
    """The reverse of `_by_row`; raises `StateError` if the saved field has another shape or type."""
    expected = _by_row(like, name, agents)
    if rows.shape != expected.shape or rows.dtype != expected.dtype:
        raise StateError(
            f"{name} of the saved arenas is {rows.dtype} {rows.shape}, not {expected.dtype} {expected.shape}"
        )
    if name in AGENT_FIELDS and like.shape[1] == agents:
        return rows.reshape(like.shape)
    size = like[0].nbytes if len(like) else 0
    flat = np.ascontiguousarray(rows.reshape(len(like), -1)[:, :size])
    return flat.view(like.dtype).reshape(like.shape)
