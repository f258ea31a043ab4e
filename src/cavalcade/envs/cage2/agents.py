"""The other agents: B_line, Meander and Sleep for Red, and Green's port scans.

A user-defined Red (`own_red`) has chosen before the step: no agent's choice depends on what Blue does in it.

An agent chooses from what its previous action reported; it never sees what Blue did, except through failures.
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import threshold
from cavalcade.envs.cage2.rng import (
    ADDRESS,
    GREEN_ACTS,
    GREEN_HOST,
    HOSTNAME,
    LINE_TARGET,
    ask,
    chance,
    choose,
)
from cavalcade.envs.cage2.scenario import (
    B_LINE,
    ENT0,
    ENT1,
    ENT2,
    ENTERPRISE,
    ENTERPRISE_SERVERS,
    ESCALATE,
    EXPLOIT,
    FALSE,
    GREEN_TARGETS,
    IMPACT,
    MEANDER,
    OP_SERVER,
    OPERATIONAL_HOSTS,
    OWN,
    RED_SLEEP,
    SCAN,
    SWEEP,
    TRUE,
    USER,
    USER1,
    USER2,
    USER3,
    USER4,
    hosts,
)

NOBODY = -1
_HALF = threshold(0.5)

# B_line's plan: what it does in each state, to whom, and where it falls back to when that fails.
_THE_USER, _THE_SERVER = -1, -2
LINE_ACTIONS = np.array(
    [SWEEP, *2 * (SCAN, EXPLOIT, ESCALATE), SWEEP, *2 * (SCAN, EXPLOIT, ESCALATE), IMPACT], np.int64
)
LINE_TARGETS = np.array(
    [USER, *3 * (_THE_USER,), *3 * (_THE_SERVER,), ENTERPRISE, *3 * (ENT2,), *4 * (OP_SERVER,)], np.int64
)
LINE_FALLBACK = np.array([0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13], np.int64)
_FIRST_SCAN, _AT_SERVER, _LAST = 1, 12, 14
_LINE_TARGET_HOSTS = hosts(USER1, USER2, USER3, USER4)


@rule
def choose_red_action(s, p, e, key):
    """Red's next action and its target (a host, or a subnet for a sweep)."""
    if s.step[e] <= p.red_delay:
        return RED_SLEEP, NOBODY
    if s.red[e] == B_LINE:
        return b_line(s, e, key)
    if s.red[e] == MEANDER:
        return meander(s, e, key)
    if s.red[e] >= OWN:
        return np.int64(s.red_action[e]), np.int64(s.red_target[e])
    return RED_SLEEP, NOBODY


@rule
def b_line(s, e, key):
    """Straight to the Op_Server; a failure throws it back along the plan.

    When its first scan of the Op_Server came back empty, it starts over at the first scan instead of attacking.
    """
    state = np.int64(s.line_state[e])
    state = min(state + 1, _LAST) if s.red_success[e] == TRUE else LINE_FALLBACK[state]
    if state == _AT_SERVER:
        if s.scan_empty[e] and not s.line_at_server[e]:
            state = _FIRST_SCAN
        else:
            s.line_at_server[e] = 1
    s.line_state[e] = state
    if state == _FIRST_SCAN and s.line_target[e] == NOBODY:
        s.line_target[e] = choose(s, e, key, LINE_TARGET, _LINE_TARGET_HOSTS)
    target = LINE_TARGETS[state]
    if target == _THE_USER:
        target = np.int64(s.line_target[e])
    elif target == _THE_SERVER:
        target = ENT1 if s.line_target[e] == USER1 or s.line_target[e] == USER2 else ENT0
    return LINE_ACTIONS[state], target


@rule
def meander(s, e, key):
    """Takes the network subnet by subnet, in random order within what it knows; sweeps and scans everything once."""
    meander_books(s, e)
    swept, scanned = np.int64(s.meander_swept[e]), np.int64(s.meander_scanned[e])
    exploited, escalated = np.int64(s.meander_exploited[e]), np.int64(s.meander_escalated[e])
    if escalated >> OP_SERVER & 1:
        s.meander_last_host[e] = OP_SERVER
        return IMPACT, OP_SERVER
    for subnet in range(3):
        if (s.subnets[e] & ~swept) >> subnet & 1:
            s.meander_swept[e] = swept | 1 << subnet
            return SWEEP, subnet
    ask(s, e, ADDRESS)
    unscanned = s.addresses[e] & ~scanned
    if unscanned:
        host = choose(s, e, key, ADDRESS, unscanned)
        s.meander_scanned[e] = scanned | 1 << host
        return SCAN, host
    ask(s, e, HOSTNAME)
    unescalated = s.hostnames[e] & ~escalated & ~(s.meander_owned[e] & ~exploited)
    if unescalated:
        host = choose(s, e, key, HOSTNAME, unescalated)
        s.meander_escalated[e] = escalated | 1 << host
        s.meander_last_host[e] = host
        return ESCALATE, host
    host = choose(s, e, key, ADDRESS, s.addresses[e] & ~exploited)
    s.meander_exploited[e] = exploited | 1 << host
    s.meander_last_exploit[e] = host
    return EXPLOIT, host


@rule
def meander_books(s, e):
    """Records the outcome of the previous action: a failed exploit makes Meander doubt a whole subnet."""
    host = np.int64(s.meander_last_exploit[e])
    if host != NOBODY:
        s.meander_last_exploit[e] = NOBODY
        if s.red_success[e] == TRUE:
            s.meander_owned[e] |= 1 << host
        else:
            doubted = 0
            if s.meander_escalated[e] & OPERATIONAL_HOSTS:
                doubted = OPERATIONAL_HOSTS
            elif s.meander_escalated[e] & ENTERPRISE_SERVERS:
                doubted = ENTERPRISE_SERVERS
            s.meander_escalated[e] &= ~doubted
            s.meander_exploited[e] &= ~(doubted | 1 << host)
    host = np.int64(s.meander_last_host[e])
    if host != NOBODY:
        s.meander_last_host[e] = NOBODY
        if s.red_success[e] == FALSE:
            s.meander_escalated[e] &= ~(1 << host)
            if s.meander_owned[e] >> host & 1:
                s.meander_exploited[e] &= ~(1 << host)


@rule
def choose_green_target(s, p, e, key):
    """The host Green scans in this step, if any. It ignores reachability and teaches Red nothing."""
    if p.green and chance(s, e, key, GREEN_ACTS, _HALF):
        return choose(s, e, key, GREEN_HOST, GREEN_TARGETS)
    return NOBODY
