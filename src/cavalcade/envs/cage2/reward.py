"""What a step costs Blue, in whole tenths: hosts held, the operational service down, a Restore."""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.cage2.rng import count
from cavalcade.envs.cage2.scenario import (
    COST_ONE_TENTH,
    COST_OT_DOWN,
    COST_RESTORE,
    COST_TEN_TENTHS,
    FIRST_RESTORE_ACTION,
)

PARTS = ("hosts", "impact", "restore")


@rule
def hosts_part(s, e):
    """Each host on which Red is privileged, once."""
    privileged = np.int64(s.privileged[e])
    return -count(privileged & COST_ONE_TENTH) - 10 * count(privileged & COST_TEN_TENTHS)


@rule
def impact_part(s, e):
    """The operational service is down: a cost of the state, whether or not Red still acts on it."""
    return 0 if s.ot_running[e] else -COST_OT_DOWN


@rule
def restore_part(action):
    """Any Restore, whatever it achieved."""
    return -COST_RESTORE if action >= FIRST_RESTORE_ACTION else 0
