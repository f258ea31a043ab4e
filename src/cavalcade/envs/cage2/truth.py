"""The hidden state as observation values: for critics that may see it, and for policies that bound what Blue can reach.

Together with the table and the extra `decoys` these bits determine the distribution of everything that follows.
Remembered ports are given as the exploits that they suggest, which is all that Red uses them for.
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.envs.cage2 import red
from cavalcade.envs.cage2.scenario import MIXED, NUM_EXPLOITS, NUM_HOSTS

_SETS = 4 * NUM_HOSTS
_PLAN_STATES = 15  # of B_line
_FLAGS = 5  # ot_running, ot_stoppable, ot_known, line_at_server, scan_empty
_SUCCESS = MIXED  # bits of the agent
_PLAN = _SUCCESS + 3  # outcomes of an action
_TARGET = _PLAN + _PLAN_STATES
_FLAG = _TARGET + NUM_HOSTS
_SUBNETS = _FLAG + _FLAGS
_SWEPT = _SUBNETS + 3
_OPTION_HOSTS = 7  # hosts whose options are in one word
# Bits of each word: what Red holds, what it knows, Meander's lists, agent and plan, latest targets, exploit options.
_OPTION_BITS = (_OPTION_HOSTS * NUM_EXPLOITS, (NUM_HOSTS - _OPTION_HOSTS) * NUM_EXPLOITS)
TRUTH_BITS = np.array([_SETS, _SETS, _SETS, _SWEPT + 3, 2 * NUM_HOSTS, *_OPTION_BITS], np.int64)
TRUTH_WORDS, TRUTH_VALUES = len(TRUTH_BITS), int(TRUTH_BITS.sum())


@rule
def four_sets(a, b, c, d):
    """Four sets of hosts in one word."""
    return np.int64(a) | np.int64(b) << NUM_HOSTS | np.int64(c) << 2 * NUM_HOSTS | np.int64(d) << 3 * NUM_HOSTS


@rule
def member(host):
    """The set of one host; empty for none (−1)."""
    return 1 << np.int64(host) if host >= 0 else 0


@rule
def plan(s, e):
    """Agent, outcome of its latest action, B_line's plan, the operational service, subnets."""
    bits = 1 << np.int64(s.red[e]) if s.red[e] < MIXED else 0
    bits |= 1 << _SUCCESS + np.int64(s.red_success[e]) | 1 << _PLAN + np.int64(s.line_state[e])
    bits |= member(s.line_target[e]) << _TARGET
    bits |= np.int64(s.ot_running[e]) << _FLAG | np.int64(s.ot_stoppable[e]) << _FLAG + 1
    bits |= np.int64(s.ot_known[e]) << _FLAG + 2 | np.int64(s.line_at_server[e]) << _FLAG + 3
    bits |= np.int64(s.scan_empty[e]) << _FLAG + 4
    return bits | np.int64(s.subnets[e]) << _SUBNETS | np.int64(s.meander_swept[e]) << _SWEPT


@rule
def options(s, e, first, last):
    """The exploits that Red would try on some hosts, by the ports that it remembers."""
    bits = 0
    for host in range(first, last):
        if s.scanned[e] >> host & 1:
            found = red.exploit_options(np.int64(s.ports[NUM_HOSTS * e + host]))
            bits |= np.int64(found) << NUM_EXPLOITS * (host - first)
    return bits


@rule
def write_truth(s, e, words, w):
    """The hidden state as `TRUTH_WORDS` integers, into row e from column w on."""
    words[e, w] = four_sets(s.user[e], s.flagged[e], s.privileged[e], s.malware[e])
    words[e, w + 1] = four_sets(s.addresses[e], s.hostnames[e], s.scanned[e], s.mail_fixed[e])
    words[e, w + 2] = four_sets(
        s.meander_scanned[e], s.meander_exploited[e], s.meander_escalated[e], s.meander_owned[e]
    )
    words[e, w + 3] = plan(s, e)
    words[e, w + 4] = member(s.meander_last_exploit[e]) | member(s.meander_last_host[e]) << NUM_HOSTS
    words[e, w + 5] = options(s, e, 0, _OPTION_HOSTS)
    words[e, w + 6] = options(s, e, _OPTION_HOSTS, NUM_HOSTS)
