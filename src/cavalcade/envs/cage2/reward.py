"""What a step costs Blue, in whole tenths: hosts held, the operational service down, a Restore."""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.cage2.rng import count
from cavalcade.envs.cage2.scenario import (
    COST_ONE_TENTH,
    COST_TEN_TENTHS,
    DEFENDER,
    ENTERPRISE_SERVERS,
    FIRST_RESTORE_ACTION,
    OP_HOST0,
    OP_HOST1,
    OP_HOST2,
    OP_SERVER,
    USER1,
    USER2,
    USER3,
    USER4,
    hosts,
)

PARTS = ("hosts", "impact", "restore")
OBJECTIVES = ("return", "protocol")
RETURN, PROTOCOL = range(2)
HORIZONS = (30, 50, 100)  # of the official protocol
_SHORT, _MIDDLE, _LONG = HORIZONS
OP_HOSTS = hosts(OP_HOST0, OP_HOST1, OP_HOST2)
COSTLY_USERS = hosts(USER1, USER2, USER3, USER4)


@rule
def hosts_part(s, p, e):
    """Each host on which Red is privileged, once."""
    privileged = np.int64(s.privileged[e])
    if p.weighted:
        return weighted_part(p, privileged)
    return -count(privileged & COST_ONE_TENTH) - 10 * count(privileged & COST_TEN_TENTHS)


@rule
def weighted_part(p, privileged):
    """The same with costs of the user's."""
    return (
        -p.cost_user * count(privileged & COSTLY_USERS)
        - p.cost_enterprise * count(privileged & ENTERPRISE_SERVERS)
        - p.cost_op_host * count(privileged & OP_HOSTS)
        - p.cost_op_server * (privileged >> OP_SERVER & 1)
        - (privileged >> DEFENDER & 1)
    )


@rule
def impact_part(s, p, e):
    """The operational service is down: a cost of the state, whether or not Red still acts on it."""
    return 0 if s.ot_running[e] else -p.cost_impact


@rule
def restore_part(p, action):
    """Any Restore, whatever it achieved."""
    return -p.cost_restore if action >= FIRST_RESTORE_ACTION else 0


@rule
def step_weight(p, step):
    """How often a step counts: once, or in the sum over the protocol's horizons as often as they include it.

    The policy is not told the horizon, so the nine-cell score is a sum of returns with these weights.
    """
    if p.objective == RETURN:
        return 1
    return (step <= _SHORT) + (step <= _MIDDLE) + (step <= _LONG)
