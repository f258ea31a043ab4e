"""Reds of your own for CAGE-2: one that mixes B_line and Meander, and one that wants a random host.

    python examples/own_red.py

From the command line, in this folder: `cavalcade train cage2 --red own_red:mix`,
`cavalcade payoff react sleep --reds bline,meander,own_red:mix,own_red:random_target`. See docs/own-red.md.
"""

import numpy as np

import cavalcade
from cavalcade.envs.cage2.own_red import (
    ENT0,
    ENT1,
    ENT2,
    ESCALATE,
    EXPLOIT,
    IMPACT,
    OP_HOST0,
    OP_HOST1,
    OP_HOST2,
    OP_SERVER,
    SCAN,
    SUBNET_OF,
    SWEEP,
    TRUE,
    UNKNOWN,
    USER1,
    USER2,
    USER3,
    USER4,
    b_line,
    hosts,
    meander,
    pick,
    rule,
)

USERS = hosts(USER1, USER2, USER3, USER4)
TARGETS = hosts(ENT0, ENT1, ENT2, OP_HOST0, OP_HOST1, OP_HOST2, OP_SERVER)


@rule
def mix(s, e, key):
    """B_line in half of the episodes, Meander in the others."""
    if s.step[e] == 0:
        s.memory[e, 0] = pick(key, 0, 0b11)
    if s.memory[e, 0] == 0:
        return b_line(s, e, key)
    return meander(s, e, key)


# What `random_target` keeps in its memory: two hosts, and three sets of hosts.
WANTED, FOOTHOLD, OWNED, ESCALATED, RESCAN = range(5)


@rule
def before(host, foothold):
    """The host from which another is reached: foothold, its Enterprise server, Enterprise2, Op_Server0, Op_Hosts."""
    server = ENT1 if foothold in (USER1, USER2) else ENT0
    if host == server:
        return foothold
    if host == OP_SERVER:
        return ENT2
    if host in (OP_HOST0, OP_HOST1, OP_HOST2):
        return OP_SERVER
    return server


@rule
def remember(s, e):
    """Books the outcome of the previous action. After a failed exploit, the ports and the host before are in doubt."""
    action, host = np.int64(s.red_action[e]), np.int64(s.red_target[e])
    if s.red_success[e] == UNKNOWN or host < 0:
        return
    bit = 1 << host
    if action == SCAN:
        s.memory[e, RESCAN] &= ~bit
    elif s.red_success[e] == TRUE:
        if action == EXPLOIT:
            s.memory[e, OWNED] |= bit
        elif action == ESCALATE:
            s.memory[e, ESCALATED] |= bit
    elif action == EXPLOIT:
        s.memory[e, RESCAN] |= bit
        s.memory[e, ESCALATED] &= ~(1 << before(host, s.memory[e, FOOTHOLD]))
    elif action in (ESCALATE, IMPACT):
        s.memory[e, OWNED] &= ~bit
        s.memory[e, ESCALATED] &= ~bit


@rule
def random_target(s, e, key):
    """Walks to a random Enterprise or Operational host and holds it; impacts the Op_Server if that is the one."""
    if s.step[e] == 0:
        s.memory[e, WANTED] = pick(key, 0, TARGETS)
        s.memory[e, FOOTHOLD] = pick(key, 1, USERS)
    remember(s, e)
    foothold, escalated = s.memory[e, FOOTHOLD], s.memory[e, ESCALATED]
    host = s.memory[e, WANTED]
    while host != foothold and not escalated >> before(host, foothold) & 1:
        host = before(host, foothold)
    if not s.addresses[e] >> host & 1:
        return SWEEP, SUBNET_OF[host]
    if not s.scanned[e] >> host & 1 or s.memory[e, RESCAN] >> host & 1:
        return SCAN, host
    if not s.memory[e, OWNED] >> host & 1:
        return EXPLOIT, host
    if host == OP_SERVER and escalated >> host & 1:
        return IMPACT, host
    return ESCALATE, host  # where it has succeeded before: a failure tells that Blue has taken the host back


if __name__ == "__main__":
    print(cavalcade.payoff(["react", "sleep"], reds=["bline", "meander", mix, random_target], steps=50, episodes=200))
