"""CybORG with workflows: as `WorkflowCage2`, but with the tables and true states of CybORG's games.

The worker writes the true state to the shared buffers in each step.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import SavedState
from cavalcade.core.jit import kernel
from cavalcade.core.rng import step_key
from cavalcade.envs.cage2 import workflow
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.workflow import WorkflowCage2, allowed_types, begin, write_order, write_repairs
from cavalcade.workflow import compliance


@kernel
def track_rows(s, t, c, environments, actions, tables, held, out, episode_stats, ended):
    """Counts a step for the orders of the given environments: adds bonuses, writes statistics, draws new orders.

    tables, held: (N,), Blue's tables and Red's hosts before the step.
    """
    for i in range(environments.size):
        e = environments[i]
        action = np.int64(actions[e])
        out.reward[e] += workflow.track(t, c, e, tables[e], held[e], action, out.reward[e], ended[i])
        if ended[i]:
            compliance.write_statistics(t, e, episode_stats)
            s.episode[e] += 1
            compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))
            write_order(t, c, e, out.words, out.values)


@kernel
def show_rows(s, t, c, out, environments, held):
    """Writes the orders of the given environments and the types they allow; held: Red's hosts in each of them."""
    for i in range(environments.size):
        e = environments[i]
        write_order(t, c, e, out.words, out.values)
        write_repairs(e, allowed_types(t, c, e, s.table[e], held[i]), out)


class WorkflowCyborg(Cyborg, WorkflowCage2):
    """Games in CybORG with an order each; arguments as for `Cyborg` and `WorkflowCage2`."""

    def __init__(self, *arguments: Any, true_state_every: int = 1, **options: Any):
        super().__init__(*arguments, true_state_every=true_state_every, **options)
        self._tables, self._held = (np.zeros(self.spec.num_envs, np.int64) for _ in range(2))

    def _send_checked(self, group: int, actions: NDArray) -> None:
        rows = self.groups[group]
        self._tables[rows], self._held[rows] = self.state.table[rows], self._hosts_held(rows)
        super()._send_checked(group, actions)

    def wait_any(self) -> int:
        """Waits until any group has results, and counts them for the orders; returns its number."""
        group = super().wait_any()
        rows = np.arange(self.groups[group].start, self.groups[group].stop)
        ended = self.buffers.terminated[rows] | self.buffers.truncated[rows]
        track_rows(
            self.state, self.track, self.settings, rows, self._actions, self._tables, self._held, self._outputs,
            self.episode_stats, ended,
        )  # fmt: skip
        self._show_orders(rows)
        return group

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """As `Cyborg`, with orders and counts."""
        return self.hosted.save_state(indices) | self._saved_track(self._rows(indices))

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Begins new games with the saved orders."""
        rows = self._rows(indices)
        self._check_track(saved, len(rows))
        super().load_state(saved, indices)
        self._load_track(saved, rows)
        begin(self.state, self.track, rows)
        self._show_orders(rows)

    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        self.hosted.begin(rows, seed + self._first_seed)
        super()._begin_first(rows, seed)
        self._show_tables(rows, self.hosted.buffers.observation)

    def _hosts_held(self, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
        """Hosts on which Red has a session, as bits; none if the true state is not read."""
        if self.true_state is None:
            return np.zeros_like(self._held[rows])
        held = self.true_state[rows] > 0
        return held.astype(np.int64) @ (1 << np.arange(held.shape[1]))

    def _show_tables(self, rows: NDArray[np.int64], tables: NDArray) -> None:
        super()._show_tables(rows, tables)
        self._show_orders(rows)

    def _show_orders(self, rows: NDArray[np.int64]) -> None:
        show_rows(self.state, self.track, self.settings, self._outputs, rows, self._hosts_held(rows))
