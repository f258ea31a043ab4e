"""Blue's actions, as they change the network and the success they report. What Blue sees of it is in `observe`."""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.cage2.scenario import (
    ANALYSE,
    APACHE,
    DECOY_FITS,
    FALSE,
    FIRST_BLOCK,
    FIRST_DECOY,
    LEADERBOARD_2022,
    MAIL_SERVERS,
    MONITOR,
    NUM_DECOYS,
    NUM_HOSTS,
    OP_SERVER,
    REMOVE,
    RESTORE,
    SLEEP,
    TRUE,
    UNKNOWN,
    USER0,
    VSFTPD,
)

NO_BLOCK = -1


@rule
def block_of(action):
    """The block of an action (Analyse, Remove, the decoys, Restore); Sleep and Monitor belong to none."""
    if action < FIRST_BLOCK:
        return NO_BLOCK
    return (action - FIRST_BLOCK) // NUM_HOSTS


@rule
def host_of(action):
    """The host an action of a block is aimed at."""
    return (action - FIRST_BLOCK) % NUM_HOSTS


@rule
def act(s, p, e, action):
    """Carries out an action and returns its success. Monitor finds no events at Blue's turn, so it equals Sleep."""
    block, host = block_of(action), host_of(action)
    if action == SLEEP:
        return UNKNOWN
    if action == MONITOR or block == ANALYSE:
        return TRUE
    if block == REMOVE:
        return remove(s, e, host)
    if block == RESTORE:
        return restore(s, p, e, host)
    return deploy(s, e, block - FIRST_DECOY, host)


@rule
def remove(s, e, host):
    """Kills detected user-level shells; privileged, undetected and ssh sessions stay. It always claims success."""
    s.flagged[e] &= ~(1 << host)
    return TRUE


@rule
def restore(s, p, e, host):
    """Puts a host back to its first state. Red's foothold on User0 belongs to that state.

    Two bugs of the original are kept: a restored Op_Server can never be stopped again, and in leaderboard-2022 a
    restored mail server can never be exploited again.
    """
    others = ~(1 << host)
    s.user[e] &= others
    s.flagged[e] &= others
    s.malware[e] &= others
    if host != USER0:
        s.privileged[e] &= others
    for kind in range(NUM_DECOYS):
        s.decoys[NUM_DECOYS * e + kind] &= others
    if host == OP_SERVER:
        s.ot_running[e] = 1
        s.ot_stoppable[e] = 0
    if p.revision == LEADERBOARD_2022:
        s.mail_fixed[e] |= 1 << host & MAIL_SERVERS
    return TRUE


@rule
def room_for(s, e, kind):
    """The hosts on which a decoy of this kind would succeed now."""
    if kind == VSFTPD:
        return DECOY_FITS[VSFTPD]
    taken = np.int64(s.decoys[NUM_DECOYS * e + kind])
    if kind == APACHE:
        taken |= s.decoys[NUM_DECOYS * e + VSFTPD]
    return DECOY_FITS[kind] & ~taken


@rule
def deploy(s, e, kind, host):
    """Starts a decoy if the operating system fits and its port is free."""
    if not room_for(s, e, kind) >> host & 1:
        return FALSE
    s.decoys[NUM_DECOYS * e + kind] |= 1 << host
    return TRUE
