"""The fixed facts of CAGE Challenge 2, Scenario2: hosts, network, services, decoys, exploits, Blue's actions.

Tables only, in the numbering of the original's observation and action lists. Everything here is a constant to the
compiled rules: whole numbers and module-level arrays, hosts as bits of an integer wherever a set of hosts is meant.
"""

import numpy as np

# Hosts, in the order of the observation and of every block of actions.
HOSTS = (
    "Defender", "Enterprise0", "Enterprise1", "Enterprise2", "Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0",
    "User0", "User1", "User2", "User3", "User4",
)  # fmt: skip
NUM_HOSTS = 13
(DEFENDER, ENT0, ENT1, ENT2, OP_HOST0, OP_HOST1, OP_HOST2, OP_SERVER, USER0, USER1, USER2, USER3, USER4) = range(13)


def hosts(*members: int) -> int:
    """The set of the given hosts, as bits."""
    return sum(1 << h for h in members)


SUBNETS = ("Enterprise", "Operational", "User")
ENTERPRISE, OPERATIONAL, USER = range(3)
ENTERPRISE_SERVERS = hosts(ENT0, ENT1, ENT2)
OPERATIONAL_HOSTS = hosts(OP_HOST0, OP_HOST1, OP_HOST2, OP_SERVER)
WINDOWS = hosts(ENT1, ENT2, USER0, USER1, USER2)
LINUX = (1 << NUM_HOSTS) - 1 & ~WINDOWS
SUBNET_HOSTS = np.array(
    [ENTERPRISE_SERVERS | hosts(DEFENDER), OPERATIONAL_HOSTS, hosts(USER0, USER1, USER2, USER3, USER4)], np.int64
)
SUBNET_OF = np.array([next(n for n in range(3) if SUBNET_HOSTS[n] >> h & 1) for h in range(NUM_HOSTS)], np.int64)
GREEN_TARGETS = int(SUBNET_HOSTS[USER]) | ENTERPRISE_SERVERS

# Kinds of hosts, as the workflow-search scripts group them.
HOST_TYPES = ("defender", "enterprise", "op_server", "op_host", "user")
TYPE_HOSTS = np.array(
    [
        hosts(DEFENDER),
        ENTERPRISE_SERVERS,
        hosts(OP_SERVER),
        hosts(OP_HOST0, OP_HOST1, OP_HOST2),
        int(SUBNET_HOSTS[USER]),
    ],
    np.int64,
)
TYPE_OF = np.array([next(n for n in range(5) if TYPE_HOSTS[n] >> h & 1) for h in range(NUM_HOSTS)], np.int64)

# Ports, as bits in the order of the recorded episodes. PORT_EPHEMERAL stands for the fresh local port of a reverse
# shell: one more distinct port among a host's events, never a listening one.
PORTS = (21, 22, 25, 53, 68, 80, 135, 139, 443, 445, 3389, 3390)


def ports(*numbers: int) -> int:
    """The set of the given ports, as bits."""
    return sum(1 << PORTS.index(n) for n in numbers)


PORT_EPHEMERAL = 1 << len(PORTS)

# Ports on which the hosts' own processes listen; nothing ever stops one of these processes.
LISTENING = np.array(
    [
        ports(22, 53, 68),
        ports(22),
        *2 * (ports(22, 135, 3389, 445, 139, 80, 443),),
        *3 * (ports(22),),
        ports(22),
        *2 * (ports(22, 21),),
        ports(445, 139, 135, 3389),
        ports(80, 3389, 443, 25),
        ports(22, 80, 3390, 443, 25),
    ],
    np.int64,
)

# Decoys. Vsftpd looks at port 21 and opens port 80: a bug of the original, kept. It never minds what is on the host,
# and an Apache decoy does mind a Vsftpd.
DECOYS = ("Apache", "Femitter", "HarakaSMPT", "Smss", "SSHD", "Svchost", "Tomcat", "Vsftpd")
NUM_DECOYS = 8
(APACHE, FEMITTER, HARAKA, SMSS, SSHD, SVCHOST, TOMCAT, VSFTPD) = range(8)
_DECOY_CHECKS = (80, 21, 25, 139, 22, 3389, 443, 21)
_DECOY_OPENS = (80, 21, 25, 139, 22, 3389, 443, 80)
_DECOY_SYSTEMS = (LINUX | WINDOWS, WINDOWS, LINUX, WINDOWS, LINUX | WINDOWS, WINDOWS, LINUX | WINDOWS, LINUX)
DECOY_PORT = np.array([ports(n) for n in _DECOY_OPENS], np.int64)
# Hosts on which the decoy works while no other decoy is in its way.
DECOY_FITS = np.array(
    [
        sum(1 << h for h in range(NUM_HOSTS) if systems >> h & 1 and not LISTENING[h] & ports(check))
        for check, systems in zip(_DECOY_CHECKS, _DECOY_SYSTEMS, strict=True)
    ],
    np.int64,
)

# Exploits, in the numbering of the recorded episodes.
EXPLOITS = (
    "EternalBlue", "BlueKeep", "HTTPRFI", "HTTPSRFI", "SSHBruteForce", "SQLInjection", "HarakaRCE",
    "FTPDirectoryTraversal",
)  # fmt: skip
NUM_EXPLOITS = 8
(ETERNAL_BLUE, BLUE_KEEP, HTTP_RFI, HTTPS_RFI, SSH_BRUTE_FORCE, SQL_INJECTION, HARAKA_RCE, FTP_TRAVERSAL) = range(8)
EXPLOIT_WEIGHT = (2, 1, 3, 4, 0.1, 5, 6, 7)
EXPLOIT_PORT = np.array([ports(n) for n in (139, 3389, 80, 443, 22, 3390, 25, 21)], np.int64)
SQL_NEEDS_ALSO = ports(80, 443)
# The exploit of largest weight among a set of them (as bits).
TOP_EXPLOIT = np.array(
    [
        max((x for x in range(NUM_EXPLOITS) if options >> x & 1), key=EXPLOIT_WEIGHT.__getitem__, default=-1)
        for options in range(1 << NUM_EXPLOITS)
    ],
    np.int64,
)
# Hosts with a process of their own that the exploit speaks to, those of them where it gives root or SYSTEM at once, and
# the decoys that answer to it. EternalBlue finds port 139 of ENT1 and ENT2 but no process of its type, BlueKeep the
# same on USER3: these fail without a trace. The Defender's ssh has no account that can be guessed.
EXPLOIT_SERVICE = np.array(
    [
        hosts(USER2),
        hosts(ENT1, ENT2, USER2),
        hosts(ENT1, ENT2, USER3, USER4),
        hosts(ENT1, ENT2, USER3, USER4),
        hosts(DEFENDER, USER0, USER1, USER4) | ENTERPRISE_SERVERS | OPERATIONAL_HOSTS,
        hosts(USER4),
        hosts(USER3, USER4),
        hosts(USER0, USER1),
    ],
    np.int64,
)
EXPLOIT_PRIVILEGED = np.array(
    [hosts(USER2), hosts(ENT1, ENT2), 0, 0, 0, hosts(USER4), hosts(USER3, USER4), hosts(USER0, USER1)], np.int64
)
EXPLOIT_DECOYS = np.array(
    [1 << SMSS, 1 << SVCHOST, 1 << APACHE | 1 << VSFTPD, 1 << TOMCAT, 1 << SSHD, 0, 1 << HARAKA, 1 << FEMITTER],
    np.int64,
)
TOP_EXPLOIT_CHANCE = 0.75
DETECTION_CHANCE = 0.95
SSH_ATTEMPTS = 10
SSH_ACCOUNTS = int(EXPLOIT_SERVICE[SSH_BRUTE_FORCE]) & ~hosts(DEFENDER)
MAIL_SERVERS = int(EXPLOIT_SERVICE[HARAKA_RCE])

# What escalating on a host tells Red about the next subnet.
LEADS_TO = np.zeros(NUM_HOSTS, np.int64)
LEADS_TO[[USER1, USER2]] = hosts(ENT1)
LEADS_TO[[USER3, USER4]] = hosts(ENT0)
LEADS_TO[ENT2] = hosts(OP_SERVER)

# Red's actions and agents. The original makes an action on what Red does not know an InvalidAction. MIXED draws one of
# the three agents for each episode; the numbers from OWN upwards are user-defined Reds.
RED_ACTIONS = (
    "Sleep", "DiscoverRemoteSystems", "DiscoverNetworkServices", "ExploitRemoteService", "PrivilegeEscalate", "Impact",
    "InvalidAction",
)  # fmt: skip
(RED_SLEEP, SWEEP, SCAN, EXPLOIT, ESCALATE, IMPACT, INVALID) = range(7)
REDS = ("sleep", "bline", "meander", "mixed")
(SLEEP_AGENT, B_LINE, MEANDER, MIXED) = range(4)
OWN = len(REDS)

# Success of an action. UNKNOWN is what Sleep reports: neither true nor false.
FALSE, TRUE, UNKNOWN = 0, 1, 2

# Blue's actions: Sleep, Monitor, then blocks of one action per host.
SLEEP, MONITOR, FIRST_BLOCK = 0, 1, 2
BLOCKS = ("Analyse", "Remove", *(f"Decoy{name}" for name in DECOYS), "Restore")
(ANALYSE, REMOVE, FIRST_DECOY), RESTORE = range(3), 10
ACTIONS = ("Sleep", "Monitor", *(f"{block} {host}" for block in BLOCKS for host in HOSTS))
NUM_ACTIONS = 145
FIRST_DECOY_ACTION = FIRST_BLOCK + NUM_HOSTS * FIRST_DECOY
FIRST_RESTORE_ACTION = FIRST_BLOCK + NUM_HOSTS * RESTORE

# Reward, in tenths: what Blue pays per step for each host on which Red is root or SYSTEM. USER0 costs nothing.
COST_ONE_TENTH = hosts(DEFENDER, OP_HOST0, OP_HOST1, OP_HOST2, USER1, USER2, USER3, USER4)
COST_TEN_TENTHS = ENTERPRISE_SERVERS | hosts(OP_SERVER)

# Observation: four bits per host, two for this step's activity (none 00, scan 10, exploit 11) and two for what Blue
# believes of the host (no 00, unknown 10, user 01, privileged 11).
NUM_BITS = 4 * NUM_HOSTS
COMPROMISED_BITS = sum(0b1100 << 4 * h for h in range(NUM_HOSTS))
NO_ACTIVITY, SCAN_ACTIVITY, EXPLOIT_ACTIVITY = 0b00, 0b01, 0b11
UNKNOWN_LEVEL, USER_LEVEL, PRIVILEGED_LEVEL = 0b01, 0b10, 0b11

# Revisions of CybORG: the newest, and that of the 2022 leaderboard.
REVISIONS = ("head", "leaderboard-2022")
HEAD, LEADERBOARD_2022 = range(2)
# Blue's table as in the official wrapper, and as in the CAGE-2 workflow-search scripts.
VARIANTS = ("challenge", "workflow")
CHALLENGE, WORKFLOW = range(2)
