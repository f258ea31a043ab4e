"""The random draws of a game, by purpose.

A draw depends on (stream, seed, environment, episode, step, purpose) and nothing else, so the same seed gives the same
games for any number of threads, any cut of the batch and any device.

A recorded game is replayed by giving the state a script: the outcomes of the draws, and a record of which were made.
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import below, index_below, word

# What a draw is for. Choices carry a list of up to 13 candidates in a script, chances a single 0 or 1.
PURPOSES = (
    "green acts", "green host", "B_line target", "address", "hostname", "other exploit", "top exploit", "detection",
    "escalated session", "red agent",
)  # fmt: skip
(GREEN_ACTS, GREEN_HOST, LINE_TARGET, ADDRESS, HOSTNAME, OTHER_EXPLOIT, TOP_EXPLOIT, DETECTION, SESSION, AGENT) = range(
    10
)
SCRIPT_WIDTH = 13
SCRIPT_SIZE = len(PURPOSES) * SCRIPT_WIDTH
NOT_SCRIPTED = -1
OTHER_COUNT = 1 << 2 * len(PURPOSES)  # the number of other exploits there were, from this bit upwards
DISAGREES = 1 << len(PURPOSES)  # shifted by a purpose: no scripted outcome was possible


@rule
def count(bits):
    """The number of set bits among the lowest 16."""
    bits = bits - (bits >> 1 & 0x5555)
    bits = (bits & 0x3333) + (bits >> 2 & 0x3333)
    bits = bits + (bits >> 4) & 0x0F0F
    return bits + (bits >> 8) & 0x1F


@rule
def lowest(bits):
    """The index of the lowest set bit."""
    return count((bits & -bits) - 1)


@rule
def ask(s, e, purpose):
    """Records in a scripted game that the original makes a draw here, also where its outcome has no effect."""
    if s.script.size > 0:
        s.asked[e] |= 1 << purpose


@rule
def chance(s, e, key, purpose, limit):
    """True with the probability given by `threshold`."""
    if s.script.size > 0:
        ask(s, e, purpose)
        return s.script[SCRIPT_SIZE * e + SCRIPT_WIDTH * purpose] == 1
    return below(word(key, purpose), limit)


@rule
def choose(s, e, key, purpose, candidates):
    """A uniform choice among the set bits of `candidates` (at least one)."""
    if s.script.size > 0:
        ask(s, e, purpose)
        return scripted(s, e, purpose, candidates)
    for _ in range(index_below(word(key, purpose), count(candidates))):
        candidates &= candidates - 1
    return lowest(candidates)


@rule
def scripted(s, e, purpose, candidates):
    """The first entry of the script's list that is a candidate; if there is none the game and its script disagree."""
    start = SCRIPT_SIZE * e + SCRIPT_WIDTH * purpose
    if purpose == OTHER_EXPLOIT:
        s.asked[e] |= count(candidates) * OTHER_COUNT
    for i in range(SCRIPT_WIDTH):
        choice = np.int64(s.script[start + i])
        if choice >= 0 and candidates >> choice & 1:
            return choice
    s.asked[e] |= DISAGREES << purpose
    return lowest(candidates)
