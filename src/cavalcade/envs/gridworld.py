"""A gridworld with four goals: a small domain in which the order is known to matter.

The agent starts in the middle of a square grid with a goal in each corner and moves up, down, left or right. Each step
costs 0.05. There is a hidden order: a goal visited in its turn pays 1 for the first, 2 for the second and so on; out of
turn it pays nothing and still counts as visited. The game terminates when all goals are visited; it is truncated at the
horizon. Subtasks are the goals, open until visited, attempted by stepping on them; the state is fully observed. Where
an order is enforced, moves onto a goal out of turn are masked.

An observation is bits: column, row, visited goals, the order that the agent shall follow.
"""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple, Self

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import Buffers, EnvSpec, Packed, SavedState, checked_actions
from cavalcade.core.errors import ActionError, ConfigError, StateError, at_least, one_of
from cavalcade.core.jit import kernel, rule
from cavalcade.core.rng import STREAMS, environment_key, step_key
from cavalcade.workflow import compliance
from cavalcade.workflow.compliance import AT_OPEN, AT_SEEN, MEASURES, NOTHING, Settings
from cavalcade.workflow.enforcement import allowed_subtasks
from cavalcade.workflow.orders import Subtasks
from cavalcade.workflow.tracking import WorkflowEnvironment

SIZE = 5
GRIDWORLD = Subtasks(("north_west", "south_east", "north_east", "south_west"))
_SPOTS = np.array([(0, 0), (SIZE - 1, SIZE - 1), (SIZE - 1, 0), (0, SIZE - 1)])  # column, row
_MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])
_COUNT = len(GRIDWORLD)
_ALL = (1 << _COUNT) - 1
_VALUES = 2 * SIZE + _COUNT + _COUNT * _COUNT
_STEP_COST = 0.05


class Game(NamedTuple):
    """The state, one entry per environment."""

    key: np.ndarray  # uint64
    episode: np.ndarray  # int32
    step: np.ndarray  # int32
    column: np.ndarray  # int8
    row: np.ndarray  # int8
    visited: np.ndarray  # int8: goals as bits
    in_turn: np.ndarray  # int8: number of goals visited in turn


class Shown(NamedTuple):
    """Output arrays of a step."""

    words: np.ndarray  # (N, 2) int64
    values: np.ndarray  # (N, O) uint8
    final_words: np.ndarray
    final_values: np.ndarray
    reward: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    truncated: np.ndarray  # (N,) bool
    episode_stats: np.ndarray  # (N, F) float64
    mask: np.ndarray  # (N, 4) bool
    mask_words: np.ndarray  # (N, 1) int64


@rule
def _moved(g, e, action):
    """Column and row after a move, clipped to the grid."""
    column, row = g.column[e] + _MOVES[action, 0], g.row[e] + _MOVES[action, 1]
    return min(max(column, 0), SIZE - 1), min(max(row, 0), SIZE - 1)


@rule
def _reached(column, row, open_):
    """The open goal at a place, or NOTHING."""
    for i in range(_COUNT):
        if open_ >> i & 1 and column == _SPOTS[i, 0] and row == _SPOTS[i, 1]:
            return i
    return NOTHING


@rule
def _write_mask(g, t, e, out):
    """Writes the moves that the order allows."""
    open_ = _ALL & ~np.int64(g.visited[e])
    allowed = allowed_subtasks(t, e, open_, open_)
    out.mask_words[e, 0] = 0
    for action in range(len(_MOVES)):
        column, row = _moved(g, e, action)
        there = _reached(column, row, open_)
        free = there == NOTHING or allowed >> there & 1 != 0
        out.mask[e, action] = free
        out.mask_words[e, 0] |= np.int64(free) << action


@rule
def _write(g, t, e, words, values):
    words[e, 0] = g.column[e] | np.int64(g.row[e]) << 4 | np.int64(g.visited[e]) << 8
    words[e, 1] = compliance.order_bits(t, e)
    for i in range(SIZE):
        values[e, i] = g.column[e] == i
        values[e, SIZE + i] = g.row[e] == i
    for i in range(_COUNT):
        values[e, 2 * SIZE + i] = g.visited[e] >> i & 1
    for i in range(_COUNT * _COUNT):
        values[e, 2 * SIZE + _COUNT + i] = words[e, 1] >> i & 1


@rule
def _begin(g, t, e):
    g.step[e] = 0
    g.column[e] = SIZE // 2
    g.row[e] = SIZE // 2
    g.visited[e] = 0
    g.in_turn[e] = 0
    compliance.begin(t, e, step_key(g.key[e], g.episode[e], 0))


@kernel
def _begin_all(g, t, out, environments):
    for e in environments:
        _begin(g, t, e)
        _write(g, t, e, out.words, out.values)
        _write_mask(g, t, e, out)


@kernel
def _show_all(g, t, out, environments):
    for e in environments:
        _write(g, t, e, out.words, out.values)
        _write_mask(g, t, e, out)
        out.reward[e] = 0
        out.terminated[e] = False
        out.truncated[e] = False


@kernel
def _derive_keys(stream, seeds, indices, keys):
    for e in range(keys.size):
        keys[e] = environment_key(stream, seeds[e], indices[e])


@kernel
def _step_all(g, t, c, out, hidden, horizon, actions):
    for e in range(actions.size):
        _step(g, t, c, e, out, hidden, horizon, actions[e])


@rule
def _step(g, t, c, e, out, hidden, horizon, action):
    """One move; hidden: the goals in the order that pays."""
    g.step[e] += 1
    column, row = _moved(g, e, action)
    g.column[e], g.row[e] = column, row
    open_, reward = _ALL & ~np.int64(g.visited[e]), -_STEP_COST
    attempt = _reached(column, row, open_)
    if attempt != NOTHING:
        if g.in_turn[e] < _COUNT and hidden[g.in_turn[e]] == attempt:
            g.in_turn[e] += 1
            reward += g.in_turn[e]
        g.visited[e] |= 1 << attempt
    over, late = g.visited[e] == _ALL, g.step[e] >= horizon
    out.terminated[e] = over
    out.truncated[e] = late and not over
    aim = AT_SEEN | AT_OPEN
    out.reward[e] = reward + compliance.track(t, c, e, open_, open_, open_, attempt, aim, reward, over, late)
    if over or late:
        compliance.write_statistics(t, e, out.episode_stats)
        _write(g, t, e, out.final_words, out.final_values)
        g.episode[e] += 1
        _begin(g, t, e)
    _write(g, t, e, out.words, out.values)
    _write_mask(g, t, e, out)


class Gridworld(WorkflowEnvironment):
    """A batch of gridworlds.

    Args:
        num_envs: games in the batch.
        hidden: the order that pays, by name.
        horizon: steps after which a game is truncated.
        seed: of the games, which matters only for shuffled orders; one, or one per equal share of the environments.
        stream: train, evaluate or heldout.
        measure: of compliance, which alignment rewards pay for.
        alpha, beta, gamma, timeout_is_terminal: settings of alignment rewards, see `workflow.compliance`.
    """

    subtasks = GRIDWORLD

    def __init__(
        self,
        num_envs: int,
        *,
        hidden: str = "north_east>south_west>north_west>south_east",
        horizon: int = 40,
        seed: int | Sequence[int] = 0,
        stream: str = "train",
        measure: str = "table",
        alpha: float = 0.1,
        beta: float = 0.2,
        gamma: float = 0.99,
        timeout_is_terminal: bool = True,
    ):
        self._hidden = np.array(GRIDWORLD.parse(hidden))
        self.horizon = at_least("horizon", horizon, 1)
        self._stream = np.uint64(one_of("stream", stream, STREAMS))
        code = one_of("compliance", measure, MEASURES)
        self.settings = Settings(code, alpha, beta, gamma, int(timeout_is_terminal), until=0, show_order=1)
        self._allocate(at_least("num_envs", num_envs, 1))
        seeds = np.atleast_1d(np.asarray(seed, np.uint64))
        if num_envs % seeds.size:
            raise ConfigError(f"{seeds.size} seeds do not divide {num_envs} environments")
        share = num_envs // seeds.size
        indices = np.tile(np.arange(share, dtype=np.uint64), seeds.size)
        _derive_keys(self._stream, np.repeat(seeds, share), indices, self._game.key)

    def _allocate(self, num_envs: int) -> None:
        self._everywhere = np.arange(num_envs)
        self._actions = np.zeros(num_envs, np.int64)
        self._begun = False
        kinds = (np.uint64, np.int32, np.int32, np.int8, np.int8, np.int8, np.int8)
        self._game = Game(*(np.zeros(num_envs, kind) for kind in kinds))
        self.track = compliance.allocate(num_envs, _COUNT)
        words = [np.zeros((num_envs, 2), np.int64) for _ in range(2)]
        values = [np.zeros((num_envs, _VALUES), np.uint8) for _ in range(2)]
        flags = [np.zeros(num_envs, np.bool_) for _ in range(2)]
        self.episode_stats = np.zeros((num_envs, len(self.episode_stat_names)))
        reward, mask = np.zeros(num_envs, np.float32), np.ones((num_envs, len(_MOVES)), np.bool_)
        mask_words = np.zeros((num_envs, 1), np.int64)
        self._shown = Shown(
            words[0], values[0], words[1], values[1], reward, flags[0], flags[1], self.episode_stats, mask, mask_words
        )
        self.buffers = Buffers(values[0], reward, flags[0], flags[1], values[1], mask)
        self.packed = Packed(words[0], words[1], mask_words)
        self.spec = EnvSpec("gridworld", num_envs, Box(0, 1, (_VALUES,), np.uint8), Discrete(len(_MOVES)))

    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        keys = np.empty(len(rows), np.uint64)
        _derive_keys(self._stream, np.full(len(rows), seed, np.uint64), np.arange(len(rows), dtype=np.uint64), keys)
        self._game.key[rows] = keys
        self._game.episode[rows] = 0
        _begin_all(self._game, self.track, self._shown, rows)
        self._begun = True

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode in all or the given environments; a seed is not accepted."""
        rows = self._everywhere if indices is None else np.asarray(indices)
        if seed is not None:
            raise ConfigError("reset was given a seed; the seed of this game is set when it is made")
        if self._begun:
            self._game.episode[rows] += 1
        self._begun = True
        _begin_all(self._game, self.track, self._shown, rows)
        return self.buffers

    def send(self, actions: ArrayLike) -> None:
        array = checked_actions(actions, self.spec.num_envs)
        if ((array < 0) | (array >= len(_MOVES))).any():
            raise ActionError(f"an action is out of range; it must be from 0 to {len(_MOVES) - 1}")
        if not self._begun:
            raise StateError("step before the first reset; call reset() once")
        self._actions[:] = array

    def recv(self) -> Buffers:
        _step_all(self._game, self.track, self.settings, self._shown, self._hidden, self.horizon, self._actions)
        return self.buffers

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        rows = self._everywhere if indices is None else np.asarray(indices)
        return {name: getattr(self._game, name)[rows].copy() for name in Game._fields} | self._saved_track(rows)

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        rows: NDArray[np.int64] = self._everywhere if indices is None else np.asarray(indices)
        self._check_track(saved, len(rows))
        for name in Game._fields:
            if name not in saved or saved[name].shape != (len(rows),):
                raise StateError(f"{name} of the saved state is missing or does not fit {len(rows)} games")
        for name in Game._fields:
            getattr(self._game, name)[rows] = saved[name]
        self._load_track(saved, rows)
        self._begun = True
        _show_all(self._game, self.track, self._shown, rows)

    def clone(self, indices: ArrayLike | None = None) -> Self:
        saved = self.save_state(indices)
        other = copy(self)
        other._allocate(len(saved["key"]))
        other.load_state(saved)
        return other
