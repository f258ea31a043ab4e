"""Counter-based random numbers: a draw is a hash of the environment, the episode, the step and the purpose.

Every operand is an explicit uint64, since mixed integer types behave differently in compiled and in plain Python.
"""

import numpy as np

from cavalcade.core.jit import rule

# Independent streams of games, and one more for the policies' draws: actions and minibatches.
STREAMS = ("train", "evaluate", "heldout")
POLICY_STREAM = np.uint64(len(STREAMS))

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_11, _27, _30, _31, U32 = (np.uint64(n) for n in (11, 27, 30, 31, 32))
_TO_UNIT = 2.0**-53


def threshold(probability: float) -> np.uint64:
    """The integer that a 53-bit draw is below with the given probability."""
    return np.uint64(probability * 2**53)


@rule
def mix(x):
    """A bijection of uint64 whose output bits all depend on all input bits (the finaliser of SplitMix64)."""
    x = (x ^ (x >> _30)) * _MULTIPLY_1
    x = (x ^ (x >> _27)) * _MULTIPLY_2
    return x ^ (x >> _31)


@rule
def environment_key(stream, seed, index):
    """The random key of one environment, from uint64 stream, seed and index."""
    return mix(mix(mix(stream + GOLDEN) ^ seed) + index * GOLDEN)


@rule
def step_key(key, episode, step):
    """The key of all draws of one step."""
    return mix(key ^ mix((np.uint64(episode) << U32) + np.uint64(step) + GOLDEN))


@rule
def word(key, purpose):
    """64 random bits for one purpose."""
    return mix(key + np.uint64(purpose + 1) * GOLDEN)


@rule
def below(bits, limit):
    """Whether a draw is below a `threshold`."""
    return bits >> _11 < limit


@rule
def index_below(bits, n):
    """A uniform integer from 0 to n − 1."""
    return np.int64((bits >> U32) * np.uint64(n) >> U32)


@rule
def unit(bits):
    """A uniform number in [0, 1)."""
    return np.float64(bits >> _11) * _TO_UNIT
