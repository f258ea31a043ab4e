"""CAGE-2 with workflows: each game has an order of host types to repair, compliance is counted inside the step.

What is open: the types with a host on which Red really has a session, before Blue's action. What is attempted: the type
of the host that a Remove or Restore is aimed at. Under `choice` User0 does not count as compromised: Red always holds
it. The order follows the observation as 25 bits, place by type.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import ArrayLike, NDArray

from cavalcade.envs.cage2 import blue, cpu, game, observe
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import HOST_TYPES, REMOVE, RESTORE, TYPE_HOSTS, TYPE_OF, USER0
from cavalcade.envs.contract import Buffers, Packed, SavedState
from cavalcade.errors import StateError, one_of
from cavalcade.jit import kernel, rule
from cavalcade.rng import step_key
from cavalcade.workflow import compliance
from cavalcade.workflow.compliance import CHOICE, DEFINITIONS, FIGURES, NOTHING, Settings
from cavalcade.workflow.tracking import WorkflowEnvironment

_TYPES = len(HOST_TYPES)
_VALUES = _TYPES * _TYPES
ORDER_BITS = _VALUES


@rule
def open_types(s, e, definition):
    """The types with a compromised host, as bits."""
    held = np.int64(s.user[e]) | np.int64(s.flagged[e]) | np.int64(s.privileged[e])
    if definition == CHOICE:
        held &= ~(1 << USER0)
    found = 0
    for kind in range(_TYPES):
        if held & TYPE_HOSTS[kind]:
            found |= 1 << kind
    return found


@rule
def attempted_type(action):
    """The type that a Remove or Restore is aimed at."""
    block = blue.block_of(action)
    return TYPE_OF[blue.host_of(action)] if block in (REMOVE, RESTORE) else NOTHING


@rule
def write_order(t, e, words, values):
    """The order at the end of the observation."""
    bits = compliance.order_bits(t, e)
    words[e, words.shape[1] - 1] = bits
    observe.write_bits(bits, _VALUES, values, e, values.shape[1] - _VALUES)


@rule
def advance(s, p, e, action, out, t, c, figures):
    """One step of a game, and what it means for the order."""
    open_, attempt = open_types(s, e, c.definition), attempted_type(action)
    game.advance(s, p, e, action, out)
    ended = out.truncated[e]
    out.reward[e] += compliance.track(t, c, e, open_, attempt, out.reward[e], False, ended)
    if ended:
        compliance.write_figures(t, c, e, figures)
        write_order(t, e, out.final_words, out.final_values)
        if p.autoreset:
            compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))
            write_order(t, e, out.words, out.values)


@rule
def advance_packed(s, p, e, action, out, t, c, figures):
    """The same with observation and mask as integers only."""
    open_, attempt = open_types(s, e, c.definition), attempted_type(action)
    game.advance_packed(s, p, e, action, out)
    last = out.words.shape[1] - 1
    ended = out.truncated[e]
    out.reward[e] += compliance.track(t, c, e, open_, attempt, out.reward[e], False, ended)
    if ended:
        compliance.write_figures(t, c, e, figures)
        out.final_words[e, last] = compliance.order_bits(t, e)
        if p.autoreset:
            compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))
    out.words[e, last] = compliance.order_bits(t, e)


@kernel
def begin(s, t, environments):
    """New episodes in the given environments."""
    for e in environments:
        compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))


@kernel
def show(out, t, environments):
    """The orders of the given environments."""
    for e in environments:
        write_order(t, e, out.words, out.values)


@kernel
def step_range(s, p, actions, out, t, c, figures, start, stop):
    """One step of environments start … stop − 1."""
    for e in range(start, stop):
        advance(s, p, e, np.int64(actions[e]), out, t, c, figures)


@kernel(parallel=True)
def step_threads(s, p, actions, out, t, c, figures, threads):
    """One step of all environments, cut into one range per thread."""
    n = actions.size
    for i in numba.prange(threads):
        step_range(s, p, actions, out, t, c, figures, i * n // threads, (i + 1) * n // threads)


class WorkflowCage2(Cage2, WorkflowEnvironment):
    """A batch of CAGE-2 games with an order each; `assign` says which.

    The reward is that of the game plus the alignment bonus; `figures` has them apart for each episode that ends, with
    its compliance. Other arguments as for `Cage2`.

    Args:
        num_envs: games in the batch.
        definition: of compliance, choice or original.
        alpha: reward for keeping the order, with alignment alpha-beta.
        beta: cost of breaking it.
        gamma: discount of alignment potential.
        horizon_ends: whether the learner treats running out of time as the end of the game.
        **options: of `Cage2`.
    """

    subtasks = CAGE2

    def __init__(
        self,
        num_envs: int,
        *,
        definition: str = "choice",
        alpha: float = 0.1,
        beta: float = 0.2,
        gamma: float = 0.99,
        horizon_ends: bool = True,
        **options: Any,
    ):
        self.settings = Settings(one_of("compliance", definition, DEFINITIONS), alpha, beta, gamma, int(horizon_ends))
        super().__init__(num_envs, **options)

    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        keys = np.empty(len(rows), np.uint64)
        cpu.derive_keys(self._stream, np.full(len(rows), seed, np.uint64), np.arange(len(rows), dtype=np.uint64), keys)
        self.state.key[rows] = keys
        self.state.episode[rows] = 0
        cpu.begin(self.state, rows)
        begin(self.state, self.track, rows)
        self._shown(rows)

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        """Begins the next episode everywhere or in the given environments."""
        super().reset(seed=seed, indices=indices)
        rows = self._rows(indices)
        begin(self.state, self.track, rows)
        show(self._outputs, self.track, rows)
        return self.buffers

    def recv(self) -> Buffers:
        """Plays the actions sent."""
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        self._sent = False
        s, p, out, n = self.state, self.params, self._outputs, self.spec.num_envs
        tracked = (self.track, self.settings, self.figures)
        threads = min(self.threads, n // cpu.ENVIRONMENTS_PER_THREAD)
        if threads > 1:
            step_threads(s, p, self._actions, out, *tracked, threads)
        else:
            step_range(s, p, self._actions, out, *tracked, 0, n)
        return self.buffers

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """A copy of the games and of what is counted about them."""
        return super().save_state(indices) | self._saved_track(self._rows(indices))

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Puts saved games into all environments or those given; nothing changes if they do not fit."""
        rows = self._rows(indices)
        self._check_track(saved, len(rows))
        super().load_state(saved, indices)
        self._load_track(saved, rows)
        show(self._outputs, self.track, rows)

    def _allocate(self, num_envs: int) -> None:
        super()._allocate(num_envs)
        self.track = compliance.allocate(num_envs, _TYPES)
        self.figures: NDArray[np.float64] = np.zeros((num_envs, len(FIGURES)))
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
        show(self._outputs, self.track, rows)
