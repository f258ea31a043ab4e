"""What Red's actions do. Each returns its success and the network events it leaves on its target host.

Events of a host are one integer, since only these properties are ever used: the distinct local ports (low
bits), whether a reverse shell was seen (`SHELL`) and how many events there were (from `EVENT` upwards).
All traffic starts on User0, whatever else Red holds.
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import threshold
from cavalcade.envs.cage2.rng import DETECTION, OTHER_EXPLOIT, SESSION, TOP_EXPLOIT, chance, choose, count
from cavalcade.envs.cage2.scenario import (
    DECOY_PORT,
    ENTERPRISE_SERVERS,
    ESCALATE,
    EXPLOIT,
    EXPLOIT_DECOYS,
    EXPLOIT_PORT,
    EXPLOIT_PRIVILEGED,
    EXPLOIT_SERVICE,
    FALSE,
    HARAKA_RCE,
    IMPACT,
    INVALID,
    LEADERBOARD_2022,
    LEADS_TO,
    LISTENING,
    NUM_DECOYS,
    NUM_EXPLOITS,
    NUM_HOSTS,
    OP_SERVER,
    OPERATIONAL,
    PORT_EPHEMERAL,
    SCAN,
    SQL_INJECTION,
    SQL_NEEDS_ALSO,
    SSH_ACCOUNTS,
    SSH_ATTEMPTS,
    SSH_BRUTE_FORCE,
    SUBNET_HOSTS,
    SUBNET_OF,
    SWEEP,
    TOP_EXPLOIT_CHANCE,
    TRUE,
    UNKNOWN,
)
from cavalcade.envs.cage2.scenario import TOP_EXPLOIT as TOP_OF

SHELL = PORT_EPHEMERAL << 1
EVENT = SHELL << 1
LOCAL_PORTS = SHELL - 1
NO_EVENTS = 0

_TOP = threshold(TOP_EXPLOIT_CHANCE)


@rule
def act(s, p, e, key, action, target):
    """Carries out Red's action."""
    s.red_exploit[e] = -1
    if action == SWEEP:
        return sweep(s, e, target)
    if action == SCAN:
        return scan(s, p, e, target)
    if action == EXPLOIT:
        return exploit(s, p, e, key, target)
    if action == ESCALATE:
        return escalate(s, e, key, target)
    if action == IMPACT:
        return impact(s, e, target)
    if action == INVALID:
        return FALSE, NO_EVENTS
    return UNKNOWN, NO_EVENTS


@rule
def held(s, e):
    """The hosts on which Red has any session."""
    return np.int64(s.user[e] | s.flagged[e] | s.privileged[e])


@rule
def reachable(s, e, subnet):
    """Operational is reached through a session on any Enterprise server; the other subnets always."""
    return subnet != OPERATIONAL or held(s, e) & ENTERPRISE_SERVERS != 0


@rule
def live_ports(s, e, host):
    """The ports that answer on a host: its own and its decoys'."""
    found = LISTENING[host]
    for kind in range(NUM_DECOYS):
        if s.decoys[NUM_DECOYS * e + kind] >> host & 1:
            found |= DECOY_PORT[kind]
    return found


@rule
def scan_events(s, e, host):
    """A port scan leaves one event per listening port."""
    found = live_ports(s, e, host)
    return found | count(found) * EVENT


@rule
def sweep(s, e, subnet):
    """DiscoverRemoteSystems: the addresses of a subnet. Blue never sees it."""
    if not reachable(s, e, subnet):
        return FALSE, NO_EVENTS
    s.addresses[e] |= SUBNET_HOSTS[subnet]
    return TRUE, NO_EVENTS


@rule
def scan(s, p, e, host):
    """DiscoverNetworkServices: remembers a host's ports. An unreachable host gives success and an empty result.

    A new scan replaces what was remembered; in leaderboard-2022 it adds to it.
    """
    if not reachable(s, e, SUBNET_OF[host]):
        s.scan_empty[e] = 1
        return TRUE, NO_EVENTS
    found = live_ports(s, e, host)
    s.scan_empty[e] = 0
    s.scanned[e] |= 1 << host
    if p.revision == LEADERBOARD_2022:
        s.ports[NUM_HOSTS * e + host] |= found
    else:
        s.ports[NUM_HOSTS * e + host] = found
    return TRUE, found | count(found) * EVENT


@rule
def exploit_options(remembered):
    """The exploits that the remembered ports suggest, as bits."""
    options = 0
    for x in range(NUM_EXPLOITS):
        if remembered & EXPLOIT_PORT[x]:
            options |= 1 << x
    if not remembered & SQL_NEEDS_ALSO:
        options &= ~(1 << SQL_INJECTION)
    return options


@rule
def choose_exploit(s, e, key, options):
    """The heaviest option three times out of four, else one of the others."""
    top = TOP_OF[options]
    others = options & ~(1 << top)
    if others == 0:
        return top
    other = choose(s, e, key, OTHER_EXPLOIT, others)
    if chance(s, e, key, TOP_EXPLOIT, _TOP):
        return top
    return other


@rule
def exploit(s, p, e, key, host):
    """ExploitRemoteService: chosen by remembered ports, played against the processes that run now."""
    options = 0
    if s.scanned[e] >> host & 1:
        options = exploit_options(np.int64(s.ports[NUM_HOSTS * e + host]))
    if options == 0:
        return FALSE, NO_EVENTS
    x = choose_exploit(s, e, key, options)
    s.red_exploit[e] = x
    if not reachable(s, e, SUBNET_OF[host]):
        return FALSE, NO_EVENTS
    if EXPLOIT_SERVICE[x] >> host & 1:
        return attack_service(s, p, e, key, x, host)
    return attack_decoy(s, e, x, host)


@rule
def attack_decoy(s, e, x, host):
    """The host has no such process of its own: a decoy answers and reports, or nobody does and nothing is seen."""
    for kind in range(NUM_DECOYS):
        if EXPLOIT_DECOYS[x] >> kind & 1 and s.decoys[NUM_DECOYS * e + kind] >> host & 1:
            if x == SSH_BRUTE_FORCE:
                return FALSE, EXPLOIT_PORT[x] | SSH_ATTEMPTS * EVENT
            return FALSE, EXPLOIT_PORT[x] | 2 * EVENT
    return FALSE, NO_EVENTS


@rule
def attack_service(s, p, e, key, x, host):
    """The host's own process is attacked. A reverse shell is noticed 19 times out of 20, an ssh session never."""
    bit = 1 << host
    if x == SSH_BRUTE_FORCE:
        if not SSH_ACCOUNTS & bit:
            return FALSE, EXPLOIT_PORT[x] | SSH_ATTEMPTS * EVENT
        s.user[e] |= bit
        learn(s, e, bit)
        return TRUE, EXPLOIT_PORT[x] | (SSH_ATTEMPTS + 1) * EVENT
    if x == HARAKA_RCE and s.mail_fixed[e] & bit:
        return FALSE, EXPLOIT_PORT[x] | EVENT
    s.malware[e] |= bit
    learn(s, e, bit)
    detected = chance(s, e, key, DETECTION, np.uint64(p.detection))
    if EXPLOIT_PRIVILEGED[x] & bit:
        s.privileged[e] |= bit
    elif detected:
        s.flagged[e] |= bit
    else:
        s.user[e] |= bit
    if detected:
        return TRUE, EXPLOIT_PORT[x] | PORT_EPHEMERAL | SHELL | 2 * EVENT
    return TRUE, EXPLOIT_PORT[x] | EVENT


@rule
def learn(s, e, bit):
    """A session on a host makes it known by address and by name."""
    s.addresses[e] |= bit
    s.hostnames[e] |= bit


@rule
def escalate(s, e, key, host):
    """PrivilegeEscalate: a session becomes privileged if none is, and the host tells where to go next."""
    bit = 1 << host
    if not held(s, e) & bit:
        return FALSE, NO_EVENTS
    if not s.privileged[e] & bit:
        sessions = np.int64(s.user[e] >> host & 1 | (s.flagged[e] >> host & 1) << 1)
        if choose(s, e, key, SESSION, sessions) == 0:
            s.user[e] &= ~bit
        else:
            s.flagged[e] &= ~bit
        s.privileged[e] |= bit
        s.malware[e] |= bit
    s.addresses[e] |= bit | LEADS_TO[host]
    s.subnets[e] |= 1 << SUBNET_OF[host]
    if host == OP_SERVER:
        s.ot_known[e] = 1
    return TRUE, NO_EVENTS


@rule
def impact(s, e, host):
    """Impact on the Op_Server: claims success from any session there, also when there is nothing left to stop.

    No other host has the service.
    """
    if host != OP_SERVER or not (held(s, e) >> OP_SERVER & 1 and s.ot_known[e]):
        return FALSE, NO_EVENTS
    if s.ot_stoppable[e]:
        s.ot_running[e] = 0
        s.ot_stoppable[e] = 0
    return TRUE, NO_EVENTS
