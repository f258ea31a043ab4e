"""What the author of a Red needs: what Red knows, what it may do, random draws, and the challenge's own agents.

A Red is a function `red(s, e, key)` that returns an action and its target, a host or, for SWEEP, a subnet. `s` is
`Knowledge`, `e` the row of the game, `key` the source of random numbers for this step. Decorated with `rule` it is
compiled, and plays on a GPU too; undecorated it runs as plain Python, for trying out. See docs/own-red.md.

The choice may not depend on Blue's action in the same step, and cannot: Red chooses from what its own actions reported.
"""

from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.jit import callable_rule, rule
from cavalcade.core.rng import index_below, unit, word
from cavalcade.envs.cage2 import agents
from cavalcade.envs.cage2.rng import count, lowest
from cavalcade.envs.cage2.scenario import (
    DEFENDER,
    ENT0,
    ENT1,
    ENT2,
    ENTERPRISE,
    ESCALATE,
    EXPLOIT,
    FALSE,
    IMPACT,
    INVALID,
    NUM_HOSTS,
    OP_HOST0,
    OP_HOST1,
    OP_HOST2,
    OP_SERVER,
    OPERATIONAL,
    SCAN,
    SUBNET_HOSTS,
    SUBNET_OF,
    SWEEP,
    TRUE,
    UNKNOWN,
    USER,
    USER0,
    USER1,
    USER2,
    USER3,
    USER4,
    hosts,
)
from cavalcade.envs.cage2.scenario import RED_SLEEP as SLEEP
from cavalcade.envs.cage2.state import State

__all__ = [
    "DEFENDER", "ENT0", "ENT1", "ENT2", "ENTERPRISE", "ESCALATE", "EXPLOIT", "FALSE", "IMPACT", "INVALID", "MEMORY",
    "NOBODY", "NUM_HOSTS", "OPERATIONAL", "OP_HOST0", "OP_HOST1", "OP_HOST2", "OP_SERVER", "SCAN", "SLEEP",
    "SUBNET_HOSTS", "SUBNET_OF", "SWEEP", "TRUE", "UNKNOWN", "USER", "USER0", "USER1", "USER2", "USER3", "USER4",
    "Knowledge", "b_line", "hosts", "meander", "pick", "rule", "uniform",
]  # fmt: skip

NOBODY = agents.NOBODY
MEMORY = 8  # integers that a Red may keep per game
_OWN_DRAWS = 1 << 18  # purposes of draws from here upwards belong to user-defined Reds


class Knowledge(NamedTuple):
    """What Red knows of each game, and its memory. Entry e belongs to game e; sets of hosts are bits.

    The fields of the challenge's agents are free for use by Reds that call them.
    """

    step: np.ndarray  # steps taken in this episode
    red_action: np.ndarray  # Red's previous action …
    red_target: np.ndarray  # … its host, or subnet of a sweep
    red_exploit: np.ndarray  # … the exploit that was tried, −1 none
    red_success: np.ndarray  # … and its outcome: FALSE, TRUE, UNKNOWN after SLEEP and at the beginning
    addresses: np.ndarray  # hosts known by address: may be scanned and exploited
    hostnames: np.ndarray  # hosts known by name, where Red once had a session: may be escalated and impacted
    subnets: np.ndarray  # subnets known: may be swept
    scanned: np.ndarray  # hosts whose ports are remembered
    ports: np.ndarray  # (13 entries per game): remembered ports of host h at 13 · e + h, as bits
    scan_empty: np.ndarray  # the latest scan came back empty
    ot_known: np.ndarray  # the operational service was found
    memory: np.ndarray  # (N, MEMORY): zero when an episode begins, otherwise the Red's own

    line_state: np.ndarray
    line_target: np.ndarray
    line_at_server: np.ndarray
    meander_swept: np.ndarray
    meander_scanned: np.ndarray
    meander_exploited: np.ndarray
    meander_escalated: np.ndarray
    meander_owned: np.ndarray
    meander_last_exploit: np.ndarray
    meander_last_host: np.ndarray
    script: np.ndarray
    asked: np.ndarray


def knowledge(s: State, memory: Any) -> Knowledge:
    """Red's part of a state."""
    return Knowledge(*(memory if name == "memory" else getattr(s, name) for name in Knowledge._fields))


@rule
def allowed(k, e, action, target):
    """An action as the original carries it out: on what Red does not know, it is an InvalidAction."""
    known = 0
    if action == SLEEP:
        return SLEEP, NOBODY
    if action == SWEEP:
        known = np.int64(k.subnets[e])
    elif action in (SCAN, EXPLOIT):
        known = np.int64(k.addresses[e])
    elif action in (ESCALATE, IMPACT):
        known = np.int64(k.hostnames[e])
    if 0 <= target < NUM_HOSTS and known >> target & 1:
        return action, target
    return INVALID, NOBODY


@callable_rule
def pick(key, number, candidates):
    """A uniform choice among the set bits of `candidates` (at least one); `number` tells draws of a step apart."""
    candidates = np.int64(candidates)
    for _ in range(index_below(word(key, _OWN_DRAWS + number), count(candidates))):
        candidates &= candidates - 1
    return lowest(candidates)


@callable_rule
def uniform(key, number):
    """A uniform number in [0, 1); `number` tells draws of a step apart."""
    return unit(word(key, _OWN_DRAWS + number))


@callable_rule
def b_line(s, e, key):
    """B_line's next action."""
    return agents.b_line(s, e, key)


@callable_rule
def meander(s, e, key):
    """Meander's next action."""
    return agents.meander(s, e, key)
