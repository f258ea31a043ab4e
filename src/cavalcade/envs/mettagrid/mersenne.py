"""The Mersenne Twister of the original, word by word, and its shuffle (libstdc++ of GCC 11 or newer).

Words are generated one at a time in place: the same stream as in blocks of 624, at an even cost per step.
"""

import numpy as np

from cavalcade.core.jit import rule

WORDS = 624
_SHIFT = 397


@rule
def seed_words(words, position, e, seed):
    """Seeds the generator of arena e with a 32-bit number."""
    value = np.uint32(seed)
    words[e, 0] = value
    for i in range(1, WORDS):
        value = np.uint32(np.uint32(1812433253) * (value ^ (value >> np.uint32(30))) + np.uint32(i))
        words[e, i] = value
    position[e] = 0


@rule
def next_word(words, position, e):
    """The next 32 random bits of arena e."""
    i = np.int64(position[e])
    after = i + 1 if i < WORDS - 1 else 0
    far = i + _SHIFT if i < WORDS - _SHIFT else i - (WORDS - _SHIFT)
    mixed = (words[e, i] & np.uint32(0x80000000)) | (words[e, after] & np.uint32(0x7FFFFFFF))
    value = words[e, far] ^ (mixed >> np.uint32(1))
    if mixed & np.uint32(1):
        value ^= np.uint32(0x9908B0DF)
    words[e, i] = value
    position[e] = after
    value ^= value >> np.uint32(11)
    value ^= (value << np.uint32(7)) & np.uint32(0x9D2C5680)
    value ^= (value << np.uint32(15)) & np.uint32(0xEFC60000)
    value ^= value >> np.uint32(18)
    return np.uint32(value)


@rule
def below(words, position, e, n):
    """A random number from 0 to n − 1 (Lemire's method)."""
    n = np.uint64(n)
    product = np.uint64(next_word(words, position, e)) * n
    low = product & np.uint64(0xFFFFFFFF)
    if low < n:
        least = (np.uint64(0x100000000) - n) % n
        while low < least:
            product = np.uint64(next_word(words, position, e)) * n
            low = product & np.uint64(0xFFFFFFFF)
    return np.int64(product >> np.uint64(32))


@rule
def shuffle(order, words, position, e):
    """Draws the order of the agents of arena e; two places per draw."""
    n = order.shape[1]
    for i in range(n):
        order[e, i] = i
    i = 1
    if n % 2 == 0:
        j = below(words, position, e, 2)
        order[e, 1], order[e, j] = order[e, j], order[e, 1]
        i = 2
    while i < n:
        x = below(words, position, e, (i + 1) * (i + 2))
        j, k = x // (i + 2), x % (i + 2)
        order[e, i], order[e, j] = order[e, j], order[e, i]
        order[e, i + 1], order[e, k] = order[e, k], order[e, i + 1]
        i += 2
