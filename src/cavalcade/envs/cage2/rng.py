"""Randomness that is counted, not streamed: each draw is a hash of who asks, when, and what for.

A draw depends on (stream, seed, environment, episode, step, purpose) and nothing else, so the same seed gives the same
games for any number of threads, any cut of the batch and any device. Every operand is an explicit uint64, since mixed
integer types behave differently in compiled and in plain Python.

A recorded game is replayed by giving the state a script: the outcomes of the draws, and a note of which were asked for.
"""

import numpy as np

from cavalcade.envs.jit import rule

STREAMS = ("train", "evaluate", "heldout")

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

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_11 = np.uint64(11)


def threshold(probability: float) -> np.uint64:
    """The whole number below which a 53-bit draw lies with the given probability."""
    return np.uint64(probability * 2**53)


@rule
def mix(x):
    """A bijection of uint64 whose output bits all depend on all input bits (the finaliser of SplitMix64)."""
    x = (x ^ (x >> _30)) * _MULTIPLY_1
    x = (x ^ (x >> _27)) * _MULTIPLY_2
    return x ^ (x >> _31)


@rule
def environment_key(stream, seed, index):
    """The key of one environment's randomness, from uint64 stream, seed and index."""
    return mix(mix(mix(stream + _GOLDEN) ^ seed) + index * _GOLDEN)


@rule
def step_key(key, episode, step):
    """The key of all draws of one step."""
    return mix(key ^ mix((np.uint64(episode) << _32) + np.uint64(step) + _GOLDEN))


@rule
def word(key, purpose):
    """64 random bits for one purpose."""
    return mix(key + np.uint64(purpose + 1) * _GOLDEN)


@rule
def count(bits):
    """How many of the lowest 16 bits are set."""
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
    """Notes in a scripted game that the original makes a draw here, also where its outcome has no effect."""
    if s.script.size > 0:
        s.asked[e] |= 1 << purpose


@rule
def chance(s, e, key, purpose, limit):
    """True with the probability given by `threshold`."""
    if s.script.size > 0:
        ask(s, e, purpose)
        return s.script[SCRIPT_SIZE * e + SCRIPT_WIDTH * purpose] == 1
    return word(key, purpose) >> _11 < limit


@rule
def choose(s, e, key, purpose, candidates):
    """One of the set bits of `candidates` (at least one), each with the same chance."""
    if s.script.size > 0:
        ask(s, e, purpose)
        return scripted(s, e, purpose, candidates)
    n = np.int64((word(key, purpose) >> _32) * np.uint64(count(candidates)) >> _32)
    for _ in range(n):
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
