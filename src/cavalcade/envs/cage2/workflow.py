"""CAGE-2 with workflows: each game has an order of host types to repair, enforced and counted inside the step.

Blue sees a type open if its table shows a host of that type compromised; a type is truly open if Red has a session on
one of its hosts. User0, where Red always is, counts for neither. The attempted type is that of the host that a Remove
or Restore is aimed at. Where a mask enforces the order, Remove and Restore of a type are allowed or forbidden together.
The order follows the observation as 25 bits, place by type, unless `show_order` is off.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import Buffers, Packed, SavedState
from cavalcade.core.errors import StateError, one_of
from cavalcade.core.jit import kernel, rule
from cavalcade.core.rng import step_key
from cavalcade.envs.cage2 import blue, cpu, game, observe
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import (
    FIRST_BLOCK,
    FIRST_RESTORE_ACTION,
    HOST_TYPES,
    NUM_HOSTS,
    REMOVE,
    RESTORE,
    TYPE_HOSTS,
    TYPE_OF,
    USER0,
)
from cavalcade.workflow import compliance
from cavalcade.workflow.compliance import AT_OPEN, AT_SEEN, MEASURES, NOTHING, Settings
from cavalcade.workflow.enforcement import allowed_subtasks
from cavalcade.workflow.tracking import WorkflowEnvironment

UNTIL = ("restored", "removed")
RESTORED, REMOVED = range(2)
_TYPES = len(HOST_TYPES)
_VALUES = _TYPES * _TYPES
ORDER_BITS = _VALUES
_REPAIR_BIT = observe.FREE_BIT  # of mask word 0: repairs of type 0; the others follow
_DECOY_BITS = (1 << _REPAIR_BIT) - 1
FIRST_REMOVE_ACTION = FIRST_BLOCK + NUM_HOSTS * REMOVE
# The bit of the mask words that allows an action, −1 if it is always allowed: decoys as in every game, repairs by type.
MASK_BITS = observe.MASK_BITS.copy()
for _first in (FIRST_REMOVE_ACTION, FIRST_RESTORE_ACTION):
    MASK_BITS[_first : _first + NUM_HOSTS] = _REPAIR_BIT + TYPE_OF
# Hosts at every fourth bit, as in a table; without User0.
_HOSTS = sum(1 << 4 * h for h in range(NUM_HOSTS) if h != USER0)
_TYPE_HOSTS = np.array([sum(1 << 4 * h for h in range(NUM_HOSTS) if TYPE_OF[h] == k) for k in range(_TYPES)], np.int64)


@rule
def seen_hosts(table, until):
    """Hosts that Blue's table shows compromised, at every fourth bit; until RESTORED, also unknown (removed) ones."""
    shown = table >> 3
    if until == RESTORED:
        shown |= table >> 2
    return shown & _HOSTS


@rule
def seen_types(shown):
    """The types of the hosts shown compromised, as bits."""
    found = 0
    for kind in range(_TYPES):
        if shown & _TYPE_HOSTS[kind]:
            found |= 1 << kind
    return found


@rule
def held_hosts(s, e):
    """Hosts on which Red has a session, as bits."""
    return np.int64(s.user[e]) | np.int64(s.flagged[e]) | np.int64(s.privileged[e])


@rule
def types_of(held):
    """The types of a set of hosts, as bits."""
    found = 0
    for kind in range(_TYPES):
        if held & TYPE_HOSTS[kind]:
            found |= 1 << kind
    return found


@rule
def attempted_type(action):
    """The type that a Remove or Restore is aimed at, else NOTHING."""
    block = blue.block_of(action)
    return TYPE_OF[blue.host_of(action)] if block in (REMOVE, RESTORE) else NOTHING


@rule
def track(t, c, e, table, held, action, reward, ended):
    """Counts a step for the order; table, held: Blue's table and Red's hosts before it. Returns the bonus."""
    shown, rest = seen_hosts(table, c.until), held & ~(1 << USER0)
    attempt, aim = attempted_type(action), 0
    if attempt != NOTHING:
        host = blue.host_of(action)
        aim = AT_SEEN * (shown >> 4 * host & 1) | AT_OPEN * (rest >> host & 1)
    return compliance.track(
        t, c, e, seen_types(shown), types_of(rest), types_of(held), attempt, aim, reward, False, ended
    )


@rule
def write_order(t, c, e, words, values):
    """Writes the order at the end of the observation."""
    if c.show_order:
        bits = compliance.order_bits(t, e)
        words[e, words.shape[1] - 1] = bits
        observe.write_bits(bits, _VALUES, values, e, values.shape[1] - _VALUES)


@rule
def allowed_types(t, c, e, table, held):
    """The types that may be repaired now, as bits."""
    return allowed_subtasks(t, e, seen_types(seen_hosts(table, c.until)), types_of(held & ~(1 << USER0)))


@rule
def write_repairs(e, allowed, out):
    """Writes the types that may be repaired into the mask and its words."""
    out.mask_words[e, 0] = out.mask_words[e, 0] & _DECOY_BITS | allowed << _REPAIR_BIT
    for host in range(NUM_HOSTS):
        free = allowed >> TYPE_OF[host] & 1 != 0
        out.mask[e, FIRST_REMOVE_ACTION + host] = free
        out.mask[e, FIRST_RESTORE_ACTION + host] = free


@rule
def advance(s, p, e, action, out, t, c, episode_stats):
    """Steps a game and counts the step for its order; writes all outputs."""
    table, held = s.table[e], held_hosts(s, e)
    game.advance(s, p, e, action, out)
    ended = out.truncated[e]
    out.reward[e] += track(t, c, e, table, held, action, out.reward[e], ended)
    if ended:
        compliance.write_statistics(t, e, episode_stats)
        write_order(t, c, e, out.final_words, out.final_values)
        if p.autoreset:
            compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))
            write_order(t, c, e, out.words, out.values)
    write_repairs(e, allowed_types(t, c, e, s.table[e], held_hosts(s, e)), out)


@rule
def advance_packed(s, p, e, action, out, t, c, episode_stats):
    """As `advance`, but writes observation and mask as packed integers only."""
    table, held = s.table[e], held_hosts(s, e)
    game.advance_packed(s, p, e, action, out)
    last = out.words.shape[1] - 1
    ended = out.truncated[e]
    out.reward[e] += track(t, c, e, table, held, action, out.reward[e], ended)
    if ended:
        compliance.write_statistics(t, e, episode_stats)
        if c.show_order:
            out.final_words[e, last] = compliance.order_bits(t, e)
        if p.autoreset:
            compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))
    if c.show_order:
        out.words[e, last] = compliance.order_bits(t, e)
    out.mask_words[e, 0] |= allowed_types(t, c, e, s.table[e], held_hosts(s, e)) << _REPAIR_BIT


@kernel
def begin(s, t, environments):
    """Begins episodes in the given environments."""
    for e in environments:
        compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))


@kernel
def show(s, t, c, out, environments):
    """Writes the orders of the given environments and the types they allow."""
    for e in environments:
        write_order(t, c, e, out.words, out.values)
        write_repairs(e, allowed_types(t, c, e, s.table[e], held_hosts(s, e)), out)


@kernel
def step_range(s, p, actions, out, t, c, episode_stats, start, stop):
    """Steps environments start … stop − 1."""
    for e in range(start, stop):
        advance(s, p, e, np.int64(actions[e]), out, t, c, episode_stats)


@kernel(parallel=True)
def step_threads(s, p, actions, out, t, c, episode_stats, threads):
    """Steps all environments, in one range per thread."""
    n = actions.size
    for i in numba.prange(threads):
        step_range(s, p, actions, out, t, c, episode_stats, i * n // threads, (i + 1) * n // threads)


class WorkflowCage2(Cage2, WorkflowEnvironment):
    """A batch of CAGE-2 games with an order each, set by `assign`.

    The reward is that of the game plus the alignment bonus; `episode_stats` has both separately, and the compliance.

    Args:
        num_envs: games in the batch.
        measure: measure of compliance that alignment rewards pay for: table, true, choice or original.
        open_until: restored: after a Remove, a host counts as compromised until it is restored; removed: it does not.
        show_order: whether the order is part of the observation; if all games have the same, it carries no information.
        alpha: reward for keeping the order, with alignment alpha-beta.
        beta: cost of breaking it.
        gamma: discount factor of alignment potential.
        timeout_is_terminal: whether training treats a time limit as the end of the game.
        **options: those of `Cage2`.
    """

    subtasks = CAGE2

    def __init__(
        self,
        num_envs: int,
        *,
        measure: str = "table",
        open_until: str = "restored",
        show_order: bool = True,
        alpha: float = 0.1,
        beta: float = 0.2,
        gamma: float = 0.99,
        timeout_is_terminal: bool = True,
        **options: Any,
    ):
        until = one_of("open_until", open_until, UNTIL)
        code = one_of("compliance", measure, MEASURES)
        self.settings = Settings(code, alpha, beta, gamma, int(timeout_is_terminal), until, int(show_order))
        super().__init__(num_envs, **options)

    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        keys = np.empty(len(rows), np.uint64)
        cpu.derive_keys(self._stream, np.full(len(rows), seed, np.uint64), np.arange(len(rows), dtype=np.uint64), keys)
        self.state.key[rows] = keys
        self.state.episode[rows] = 0
        self._begin(rows)
        begin(self.state, self.track, rows)
        self._shown(rows)

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        super().reset(seed=seed, indices=indices)
        rows = self._rows(indices)
        begin(self.state, self.track, rows)
        self._show_orders(rows)
        return self.buffers

    def recv(self) -> Buffers:
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        self._choose_red()
        s, p, out, n = self.state, self.params, self._outputs, self.spec.num_envs
        tracked = (self.track, self.settings, self.episode_stats)
        threads = min(self.threads, n // cpu.ENVIRONMENTS_PER_THREAD)
        if threads > 1:
            step_threads(s, p, self._actions, out, *tracked, threads)
        else:
            step_range(s, p, self._actions, out, *tracked, 0, n)
        self._follow()
        return self.buffers

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """A copy of the games, their orders and counts."""
        return super().save_state(indices) | self._saved_track(self._rows(indices))

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        rows = self._rows(indices)
        self._check_track(saved, len(rows))
        super().load_state(saved, indices)
        self._load_track(saved, rows)
        self._show_orders(rows)

    def _allocate(self, num_envs: int) -> None:
        super()._allocate(num_envs)
        self.track = compliance.allocate(num_envs, _TYPES)
        self.episode_stats: NDArray[np.float64] = np.zeros((num_envs, len(self.episode_stat_names)))
        if not self.settings.show_order:
            return
        out = self._outputs

        def wider(array: NDArray, more: int) -> NDArray:
            return np.zeros((num_envs, array.shape[1] + more), array.dtype)

        self._outputs = out = out._replace(
            words=wider(out.words, 1),
            final_words=wider(out.final_words, 1),
            values=wider(out.values, _VALUES),
            final_values=wider(out.final_values, _VALUES),
        )
        self.buffers = self.buffers._replace(observation=out.values, final_observation=out.final_values)
        self.packed = Packed(out.words, out.final_words, out.mask_words)
        space = Box(0, 1, (out.values.shape[1],), self._dtype.type)
        self.spec = type(self.spec)("cage2-workflow", num_envs, space, self.spec.action_space)

    def _shown(self, rows: NDArray[np.int64]) -> None:
        super()._shown(rows)
        self._show_orders(rows)

    def _show_orders(self, rows: NDArray[np.int64]) -> None:
        show(self.state, self.track, self.settings, self._outputs, rows)
