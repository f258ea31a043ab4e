"""The action mask of an order for a policy that plays outside `WorkflowCage2`, computed from its observations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError, one_of
from cavalcade.core.jit import kernel
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import FIRST_RESTORE_ACTION, NUM_BITS, NUM_HOSTS, TYPE_OF
from cavalcade.envs.cage2.workflow import FIRST_REMOVE_ACTION, UNTIL, allowed_types, held_hosts
from cavalcade.workflow import compliance
from cavalcade.workflow.compliance import Settings
from cavalcade.workflow.enforcement import MASKS
from cavalcade.workflow.orders import Order, ranks


@kernel
def restrict(t, c, observation, held, mask):
    """Removes the repairs that an order forbids from masks (N, 145); observation: (N, O), held: (N,), Red's hosts."""
    for e in range(mask.shape[0]):
        table = np.int64(0)
        for i in range(NUM_BITS):
            table |= np.int64(observation[e, i]) << i
        allowed = allowed_types(t, c, 0, table, held[e])
        for host in range(NUM_HOSTS):
            if not allowed >> TYPE_OF[host] & 1:
                mask[e, FIRST_REMOVE_ACTION + host] = False
                mask[e, FIRST_RESTORE_ACTION + host] = False


@kernel
def read_held(s, held):
    """Writes Red's hosts in every game, (N,), as bits."""
    for e in range(held.size):
        held[e] = held_hosts(s, e)


class OrderMask:
    """The actions that an order allows, for any batch whose observations begin with Blue's table.

    Args:
        order: of the five kinds of hosts.
        mask: what enforces it: mask (Blue's table), mask-true (the true state) or none.
        open_until: restored or removed, as for `WorkflowCage2`.
    """

    def __init__(self, order: Order, mask: str = "mask", open_until: str = "restored"):
        self.by_truth = mask == "mask-true"
        self._track = compliance.allocate(1, len(order))
        self._track.rank[0], self._track.mask[0] = ranks([order])[0], one_of("mask", mask, MASKS)
        self._settings = Settings(0, 0.0, 0.0, 1.0, 0, one_of("open_until", open_until, UNTIL), 0)

    def __call__(self, env: Environment) -> NDArray[np.bool_]:
        """The action masks (N, 145) of a batch without the actions that the order forbids."""
        mask = env.buffers.action_mask.copy()
        self.restrict(env.buffers.observation, mask, self._held(env))
        return mask

    def restrict(self, observation: NDArray, mask: NDArray[np.bool_], held: NDArray | None = None) -> None:
        """Removes the actions that the order forbids from masks, in place; held: (N,), Red's hosts, for mask-true."""
        held = np.zeros(len(mask), np.int64) if held is None else held
        restrict(self._track, self._settings, observation, held, mask)

    def _held(self, env: Any) -> NDArray[np.int64]:
        held = np.zeros(env.spec.num_envs, np.int64)
        if not self.by_truth:
            return held
        if env.true_state is not None:  # games in other processes report their own
            return (env.true_state > 0).astype(np.int64) @ (1 << np.arange(NUM_HOSTS))
        if env.out_of_process or not isinstance(env, Cage2):
            raise ConfigError("enforce is mask-true; this policy needs the true state, which these games do not report")
        read_held(env.state, held)
        return held
