"""Networks for the observations that are new in a rollout, and the table of those already seen.

An observation is known by the first sample that has it: the slots of the table hold indices of samples, and logits and
values are stored under the same indices. Which of several equal samples comes first does not matter: each row is
computed on its own, in a fixed order of operations.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import GOLDEN, mix
from cavalcade.ppo.engines.cuda.sample import keep, value_of

NONE = -1
TILE = 8  # rows that a block computes together: a weight is loaded once for all of them
MOST_VALUES = 256  # of an observation, or of a layer of both nets: what a tile has room for
AHEAD = 16  # weights that a thread loads before it uses the first
WARP = 32  # threads that take part in the same sums
_HALF = MOST_VALUES * TILE
ROOM = 2 * _HALF
_SECTOR, _CACHED = 8, 1 << 15  # numbers that a GPU fetches at once; weights that its first cache has room for


class Place(NamedTuple):
    """Columns of the description of a layer."""

    weight: int = 0  # offset in a policy's weights
    bias: int = 1
    inputs: int = 2
    columns: int = 3  # stored
    outputs: int = 4  # in use


PLACE = Place()


@rule
def hash_of(words, i):
    """A hash of an observation."""
    h = np.uint64(0)
    for w in range(words.shape[1]):
        h = mix(h + np.uint64(words[i, w]) + GOLDEN)
    return h


def find_of(claim: Any, count: Any) -> Any:
    """The lookup of one environment, with atomic operations of a device."""

    @rule
    def find(i, t, end, x, slots, fresh, num_fresh, row):
        """Keeps what environment i shows (`keep`), and finds the sample that it shares its observation with.

        It is the first that has it if there is none. slots: (P, slots), a power of two; fresh: (P, N), the
        environments with new observations; row: (P·N,), the sample found.
        """
        keep(i, t, end, x)
        n, steps, mask = fresh.shape[1], x.rewards.shape[1], slots.shape[1] - 1
        p, e = i // n, i % n
        base = (p * steps + t) * n  # the first sample of this step
        slot = np.int64(hash_of(x.words, i) & np.uint64(mask))
        while True:
            there = np.int64(claim(slots, p, slot, base + e))
            if there == NONE:
                fresh[p, count(num_fresh, p)] = e
                row[i] = base + e
                break
            same = True
            for w in range(x.words.shape[1]):
                # Words that others keep in this step may not be visible yet.
                other = x.words[p * n + there - base, w] if there >= base else x.kept_words[there, w]
                same = same and other == x.words[i, w]
            if same:
                row[i] = there
                break
            slot = slot + 1 & mask

    return find


def evaluate_of(parts: int, total: Any, wait: Any, *, prefetch: bool) -> Any:
    """The network of one block of threads that wait for each other.

    parts: threads that share a sum; total: their sum of a number that each of them has; prefetch: whether to fetch the
    weights of all layers at once, so that a block waits for its memory only once.
    """

    @rule
    def run_layer(thread, threads, layer, layers, weights, p, tiles, sums, ahead):
        """A layer of both nets for a tile, from half of `tiles` to the other; each column by neighbouring threads."""
        real, last = weights.dtype.type, layer == layers.shape[1] - 1
        before, after = layer % 2 * _HALF, (1 - layer % 2) * _HALF
        part, place = thread % parts, thread // parts
        actor = layers[0, layer, PLACE.outputs]
        columns, inputs = actor + layers[1, layer, PLACE.outputs], layers[0, layer, PLACE.inputs]
        here, first = (
            thread // WARP * WARP // parts,
            0,
        )  # columns: the first of threads with the same sums, the first of a turn
        while first + here < columns:
            column = min(first + place, columns - 1)
            net = 0 if column < actor else 1
            j, offset = column - net * actor, net * inputs if layer else 0
            width = layers[net, layer, PLACE.columns]
            at = layers[net, layer, PLACE.weight] + part * width + j
            bias = weights[p, layers[net, layer, PLACE.bias] + j]
            for r in range(TILE):
                sums[r] = 0
            for k in range(part, inputs, parts * AHEAD):
                for u in range(AHEAD):
                    ahead[u] = weights[p, np.uint64(at)] if k + u * parts < inputs else real(0)
                    at += parts * width
                for u in range(AHEAD):
                    for r in range(TILE):
                        sums[r] += tiles[np.uint64(before + (offset + k + u * parts) * TILE + r)] * ahead[u]
            for r in range(TILE):
                sums[r] = total(sums[r])
            for r in range(0, TILE, parts):  # each thread finishes its share of the rows
                x = sums[r]
                for q in range(1, parts):
                    x = sums[r + q] if part == q else x
                x += bias
                if first + place < columns:
                    tiles[after + column * TILE + r + part] = x if last else real(math.tanh(x))
            first += threads // parts

    @rule
    def evaluate(
        thread, threads, block, blocks, tiles, sums, ahead, layers, weights, words, places, t, steps, fresh, num_fresh,
        logits, values,
    ):  # fmt: skip
        """Computes logits and values of new observations; a block takes every so many tiles of a policy.

        tiles: scratch (ROOM,), two halves of (values, TILE); sums: scratch (TILE,); ahead: scratch (AHEAD,); layers:
        (2, layers, 5), see `Place`; words: (P, N, W); places: see `DeviceGames`; logits: (P·T·N, A or more);
        values: (P·T·N,).
        """
        policies, n = fresh.shape
        p, share = block % policies, blocks // policies
        inputs, depth = places.shape[0], layers.shape[1]
        actions, real = layers[0, depth - 1, PLACE.outputs], weights.dtype.type
        count, end = np.int64(num_fresh[p]), depth % 2 * _HALF
        start = block // policies * TILE
        if prefetch and start < count and weights.shape[1] <= _CACHED:
            x, k = real(0), thread * _SECTOR
            while k < weights.shape[1]:
                x += weights[p, k]
                k += threads * _SECTOR
            tiles[0] = x  # it is overwritten; what is not used would not be fetched
            wait()
        if start < count:
            k = thread
            while k < ROOM:
                tiles[k] = 0  # what lies beyond the inputs of a layer is multiplied by zero, and must be a number
                k += threads
            wait()
        first = start
        while first < count:
            size, k = min(TILE, count - first), thread
            while k < TILE * inputs:
                j, r = k // TILE, k % TILE
                tiles[k] = value_of(words, p, fresh[p, first + min(r, size - 1)], places, j, real)
                k += threads
            wait()
            for layer in range(depth):
                run_layer(thread, threads, layer, layers, weights, p, tiles, sums, ahead)
                wait()
            a = thread
            while a <= actions:
                for r in range(size):
                    sample, x = (p * steps + t) * n + fresh[p, first + r], tiles[end + a * TILE + r]
                    if a < actions:
                        logits[sample, a] = x
                    else:
                        values[sample] = x
                a += threads
            wait()
            first += share * TILE

    return evaluate
