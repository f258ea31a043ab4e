"""What Blue sees: its table of 13 hosts, the optional extras, and the mask of decoys that would succeed.

An observation is first a few integers per environment (words: 52 bits of table, then the configured extras), then the
same as one value per bit. Equal words mean equal observations.
"""

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.jit import rule
from cavalcade.envs.cage2 import blue
from cavalcade.envs.cage2.red import EVENT, LOCAL_PORTS, SHELL, scan_events
from cavalcade.envs.cage2.scenario import (
    ANALYSE,
    APACHE,
    COMPROMISED_BITS,
    EXPLOIT_ACTIVITY,
    FEMITTER,
    FIRST_DECOY,
    FIRST_DECOY_ACTION,
    HARAKA,
    MIXED,
    NO_ACTIVITY,
    NUM_ACTIONS,
    NUM_BITS,
    NUM_DECOYS,
    NUM_HOSTS,
    PRIVILEGED_LEVEL,
    REMOVE,
    RESTORE,
    SCAN_ACTIVITY,
    SMSS,
    SSHD,
    SVCHOST,
    TOMCAT,
    TRUE,
    UNKNOWN_LEVEL,
    USER_LEVEL,
    VSFTPD,
    WORKFLOW,
)
from cavalcade.envs.cage2.truth import TRUTH_BITS, TRUTH_WORDS, write_truth

# Extras, as bits of `Params.extras`, in the order in which they follow the table.
EXTRAS = ("scans", "decoys", "action", "time", "elapsed", "belief", "truth")
SCANS, DECOYS, ACTION, TIME, ELAPSED, BELIEF, TRUTH = (1 << i for i in range(7))
UNOFFICIAL = ("time", "truth")  # what the protocol does not tell Blue
# Steps after which a bit of `elapsed` is set: a thermometer, finer before the ends of the protocol's horizons.
ELAPSED_STEPS = np.array([3, 6, 10, 15, 20, 25, 28, 30, 35, 40, 45, 48, 50, 60, 70, 80, 90, 95, 98], np.int64)
# Bits of the belief, LEVELS for each probability: of user-level sessions, of privileged ones, of the three agents.
LEVELS = 4
BELIEF_BITS = np.array([LEVELS * NUM_HOSTS, LEVELS * NUM_HOSTS, LEVELS * MIXED], np.int64)
BELIEF_WORDS = len(BELIEF_BITS)
_ELAPSED_BITS = len(ELAPSED_STEPS)
_DECOYS_PER_WORD = NUM_DECOYS // 2
_EXTRA_BITS = (  # values in each word of an extra
    (2 * NUM_HOSTS,), (_DECOYS_PER_WORD * NUM_HOSTS,) * 2, (2 * NUM_HOSTS,), (1,), (_ELAPSED_BITS,),
    tuple(map(int, BELIEF_BITS)), tuple(map(int, TRUTH_BITS)),
)  # fmt: skip
EXTRA_WORDS, EXTRA_VALUES = tuple(map(len, _EXTRA_BITS)), tuple(map(sum, _EXTRA_BITS))
_MASK_BITS = _DECOYS_PER_WORD * NUM_HOSTS  # in each word
FREE_BIT = _MASK_BITS  # the first of a mask word that no decoy has
# The bit of the mask words that allows an action, 64 to a word; −1: it is always allowed.
MASK_BITS = np.full(NUM_ACTIONS, -1, np.int8)
MASK_BITS[FIRST_DECOY_ACTION : FIRST_DECOY_ACTION + 2 * _MASK_BITS] = np.r_[:_MASK_BITS, 64 : 64 + _MASK_BITS]
_WORD = 64  # bits
_FIRST_KIND_OF_BLOCK = 2  # Sleep and Monitor come before the blocks


def num_words(extras: int) -> int:
    """Integers per observation."""
    return 1 + sum(n for i, n in enumerate(EXTRA_WORDS) if extras >> i & 1)


def num_values(extras: int) -> int:
    """Values per observation."""
    return NUM_BITS + sum(n for i, n in enumerate(EXTRA_VALUES) if extras >> i & 1)


def value_places(extras: int, horizon: int, more: int = 0) -> NDArray[np.int32]:
    """Where each value of an observation is in its words, (O, 2); another word's lowest `more` bits follow.

    A bit, counted over all words, and 0; or the first bit of a word and what the whole word is divided by.
    """
    words: list[tuple[int, int]] = [(NUM_BITS, 0)]  # values of each word, and its divisor
    for i, widths in enumerate(_EXTRA_BITS):
        if extras >> i & 1:
            words += [(width, horizon if 1 << i == TIME else 0) for width in widths]
    words += [(more, 0)] if more else []
    places = [(_WORD * w + bit, whole) for w, (width, whole) in enumerate(words) for bit in range(width)]
    return np.array(places, np.int32)


@rule
def believe(table, host, level):
    """The table with a new belief about a host."""
    return table & ~(0b1100 << 4 * host) | level << 4 * host + 2


@rule
def classify(events, decoyed, variant):
    """Blue's reading of a host's events of this step, in the precedence of the original.

    `decoyed`: a decoy was deployed there in this very step. Its process counts as an event and, through the official
    wrapper, hides what touches few ports.
    """
    ports = events & LOCAL_PORTS
    all_but_one = ports & ports - 1
    if all_but_one & all_but_one - 1:
        return SCAN_ACTIVITY
    if events & SHELL:
        return EXPLOIT_ACTIVITY
    if events // EVENT + decoyed >= 3 and all_but_one == 0:
        return EXPLOIT_ACTIVITY
    if decoyed and variant != WORKFLOW:
        return NO_ACTIVITY
    return SCAN_ACTIVITY


@rule
def enter(table, host, activity):
    """The table with a host's activity of this step; an exploit makes it User, also where it was Privileged."""
    if activity == EXPLOIT_ACTIVITY:
        table = believe(table, host, USER_LEVEL)
    return table | activity << 4 * host


@rule
def update_table(s, p, e, action, malware, red_host, events):
    """Blue's table after a step.

    `malware`: where Analyse finds files at Blue's turn; `red_host`, `events`: what Red left, and where.
    """
    block, host = blue.block_of(action), blue.host_of(action)
    table = s.table[e] & COMPROMISED_BITS
    if block == RESTORE:
        table = believe(table, host, 0)
    elif block == REMOVE and table >> 4 * host & 0b1100:
        table = believe(table, host, UNKNOWN_LEVEL)
    decoyed = host if FIRST_DECOY <= block < RESTORE and s.blue_success[e] == TRUE else -1
    green_host = np.int64(s.green_target[e])
    if green_host >= 0:
        others = scan_events(s, e, green_host)
        if green_host == red_host:
            events = (events | others) % EVENT + (events // EVENT + others // EVENT) * EVENT
        else:
            table = enter(table, green_host, classify(others, green_host == decoyed, p.variant))
    if events:
        table = enter(table, red_host, classify(events, red_host == decoyed, p.variant))
    if block == ANALYSE and malware >> host & 1:
        table = believe(table, host, PRIVILEGED_LEVEL)
    s.table[e] = table
    if p.extras & SCANS:
        remember_scans(s, e, table)


@rule
def remember_scans(s, e, table):
    """Which hosts Blue has seen scanned: ever in this episode, and in the latest step that showed a scan."""
    latest = 0
    for host in range(NUM_HOSTS):
        if table >> 4 * host & 0b11 == SCAN_ACTIVITY:
            latest |= 1 << host
    if latest:
        s.seen_scanned[e] |= latest
        s.seen_latest[e] = latest


@rule
def action_bits(action):
    """An action as 13 bits for its kind (Sleep, Monitor, the blocks) and 13 for its host; no bit before the first."""
    if action < 0:
        return 0
    if action < _FIRST_KIND_OF_BLOCK:
        return 1 << action
    return 1 << _FIRST_KIND_OF_BLOCK + blue.block_of(action) | 1 << NUM_HOSTS + blue.host_of(action)


@rule
def elapsed_bits(step):
    """The steps taken so far as a thermometer."""
    bits = 0
    for i in range(_ELAPSED_BITS):
        if step >= ELAPSED_STEPS[i]:
            bits |= 1 << i
    return bits


@rule
def write_words(s, p, e, words):
    """The observation as integers, into row e."""
    words[e, 0] = s.table[e]
    w = 1
    if p.extras & SCANS:
        words[e, w] = s.seen_scanned[e] | np.int64(s.seen_latest[e]) << NUM_HOSTS
        w += 1
    if p.extras & DECOYS:
        for half in range(2):
            bits = 0
            for i in range(_DECOYS_PER_WORD):
                bits |= np.int64(s.decoys[NUM_DECOYS * e + _DECOYS_PER_WORD * half + i]) << NUM_HOSTS * i
            words[e, w + half] = bits
        w += 2
    if p.extras & ACTION:
        words[e, w] = action_bits(np.int64(s.blue_action[e]))
        w += 1
    if p.extras & TIME:
        words[e, w] = p.horizon - s.step[e]
        w += 1
    if p.extras & ELAPSED:
        words[e, w] = elapsed_bits(np.int64(s.step[e]))
        w += 1
    if p.extras & BELIEF:  # `ObservedBelief` writes it
        w += BELIEF_WORDS
    if p.extras & TRUTH:
        write_truth(s, e, words, w)


@rule
def write_bits(word, n, values, e, column):
    """The lowest n bits of a word as n values."""
    for i in range(n):
        values[e, column + i] = word >> i & 1


@rule
def write_values(p, e, words, values):
    """The observation as one value per bit, into row e; the time left as a fraction of the horizon."""
    write_bits(words[e, 0], NUM_BITS, values, e, 0)
    column, w = NUM_BITS, 1
    if p.extras & SCANS:
        write_bits(words[e, w], 2 * NUM_HOSTS, values, e, column)
        column, w = column + 2 * NUM_HOSTS, w + 1
    if p.extras & DECOYS:
        write_bits(words[e, w], _DECOYS_PER_WORD * NUM_HOSTS, values, e, column)
        write_bits(words[e, w + 1], _DECOYS_PER_WORD * NUM_HOSTS, values, e, column + _DECOYS_PER_WORD * NUM_HOSTS)
        column, w = column + NUM_DECOYS * NUM_HOSTS, w + 2
    if p.extras & ACTION:
        write_bits(words[e, w], 2 * NUM_HOSTS, values, e, column)
        column, w = column + 2 * NUM_HOSTS, w + 1
    if p.extras & TIME:
        values[e, column] = words[e, w] / p.horizon
        column, w = column + 1, w + 1
    if p.extras & ELAPSED:
        write_bits(words[e, w], _ELAPSED_BITS, values, e, column)
        column, w = column + _ELAPSED_BITS, w + 1
    if p.extras & BELIEF:
        for i in range(BELIEF_WORDS):
            write_bits(words[e, w + i], BELIEF_BITS[i], values, e, column)
            column += BELIEF_BITS[i]
        w += BELIEF_WORDS
    if p.extras & TRUTH:
        for i in range(TRUTH_WORDS):
            write_bits(words[e, w + i], TRUTH_BITS[i], values, e, column)
            column += TRUTH_BITS[i]


@rule
def write_mask_words(s, e, words):
    """Which decoys would succeed, as integers."""
    words[e, 0] = (
        blue.room_for(s, e, APACHE)
        | blue.room_for(s, e, FEMITTER) << NUM_HOSTS
        | blue.room_for(s, e, HARAKA) << 2 * NUM_HOSTS
        | blue.room_for(s, e, SMSS) << 3 * NUM_HOSTS
    )
    words[e, 1] = (
        blue.room_for(s, e, SSHD)
        | blue.room_for(s, e, SVCHOST) << NUM_HOSTS
        | blue.room_for(s, e, TOMCAT) << 2 * NUM_HOSTS
        | blue.room_for(s, e, VSFTPD) << 3 * NUM_HOSTS
    )


@rule
def write_mask(s, e, words, mask):
    """Which decoys would succeed; all other actions are always allowed, and their columns are never written."""
    write_mask_words(s, e, words)
    write_bits(words[e, 0], _MASK_BITS, mask, e, FIRST_DECOY_ACTION)
    write_bits(words[e, 1], _MASK_BITS, mask, e, FIRST_DECOY_ACTION + _MASK_BITS)
