"""CybORG with workflows: as `WorkflowCage2`, but what is open comes from the true state of CybORG's own games.

The true state is a field of the shared block, written by the worker with the step; nothing is asked for.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.scenario import TYPE_HOSTS, USER0
from cavalcade.envs.cage2.workflow import WorkflowCage2, attempted_type, begin, show, write_order
from cavalcade.envs.contract import SavedState
from cavalcade.jit import kernel
from cavalcade.rng import step_key
from cavalcade.workflow import compliance
from cavalcade.workflow.compliance import CHOICE


@kernel
def track_rows(s, t, c, environments, actions, open_, out, figures, ended):
    """What a step means for the orders of the given environments: bonus, figures of episodes that ended, new orders."""
    for i in range(environments.size):
        e = environments[i]
        attempt = attempted_type(np.int64(actions[e]))
        out.reward[e] += compliance.track(t, c, e, open_[e], attempt, out.reward[e], False, ended[i])
        if ended[i]:
            compliance.write_figures(t, c, e, figures)
            s.episode[e] += 1
            compliance.begin(t, e, step_key(s.key[e], s.episode[e], 0))
            write_order(t, e, out.words, out.values)


class WorkflowCyborg(Cyborg, WorkflowCage2):
    """Games in CybORG with an order each; arguments as for `Cyborg` and `WorkflowCage2`."""

    def __init__(self, *arguments: Any, true_state_every: int = 1, **options: Any):
        super().__init__(*arguments, true_state_every=true_state_every, **options)
        self._open = np.zeros(self.spec.num_envs, np.int64)

    def _send_checked(self, group: int, actions: NDArray) -> None:
        rows = self.groups[group]
        assert self.true_state is not None
        held = self.true_state[rows] > 0
        if self.settings.definition == CHOICE:
            held[:, USER0] = False
        bits = held.astype(np.int64) @ (1 << np.arange(held.shape[1]))
        self._open[rows] = ((bits[:, None] & np.array(TYPE_HOSTS)) > 0) @ (1 << np.arange(len(TYPE_HOSTS)))
        super()._send_checked(group, actions)

    def take(self) -> int:
        """Waits for the results of some group, and counts what they mean for the orders."""
        group = super().take()
        rows = np.arange(self.groups[group].start, self.groups[group].stop)
        ended = self.buffers.terminated[rows] | self.buffers.truncated[rows]
        track_rows(
            self.state, self.track, self.settings, rows, self._actions, self._open, self._outputs, self.figures, ended
        )
        return group

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """How many games were begun, and the orders."""
        return self.hosted.save_state(indices) | self._saved_track(self._rows(indices))

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Begins new games with the saved orders."""
        rows = self._rows(indices)
        self._check_track(saved, len(rows))
        super().load_state(saved, indices)
        self._load_track(saved, rows)
        begin(self.state, self.track, rows)
        show(self._outputs, self.track, rows)

    def _begin_first(self, rows: NDArray[np.int64], seed: int) -> None:
        self.hosted.begin(rows, seed + self._first_seed)
        super()._begin_first(rows, seed)
        self._show_tables(rows, self.hosted.buffers.observation)
