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

NONE = -1
TILE = 16  # rows that a block computes together: a weight is loaded once for all of them
MOST_VALUES = 256  # of an observation, or of a layer of both nets: what a tile has room for
AHEAD = 16  # weights that a thread loads before it uses the first


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
    def find(i, words, t, steps, slots, fresh, num_fresh, row):
        """Finds the sample that environment i shares its observation with, or makes it the first that has it.

        words: (P·T·N, W), with those of step t; slots: (P, slots), a power of two; fresh: (P, N), the environments
        with new observations; row: (P·N,), the sample found.
        """
        n, mask = fresh.shape[1], slots.shape[1] - 1
        p, e = i // n, i % n
        sample = (p * steps + t) * n + e
        slot = np.int64(hash_of(words, sample) & np.uint64(mask))
        while True:
            there = claim(slots, p, slot, sample)
            if there == NONE:
                fresh[p, count(num_fresh, p)] = e
                row[i] = sample
                break
            same = True
            for w in range(words.shape[1]):
                same = same and words[there, w] == words[sample, w]
            if same:
                row[i] = there
                break
            slot = slot + 1 & mask

    return find


def evaluate_of(wait: Any) -> Any:
    """The network of one block of threads that wait for each other."""

    @rule
    def run_layer(thread, threads, layer, layers, weights, p, tiles, sums, ahead):
        """A layer of both nets for a tile, from one half of `tiles` to the other; thread by thread a column."""
        real, last = weights.dtype.type, layer == layers.shape[1] - 1
        before, after = layer % 2, 1 - layer % 2
        actor = layers[0, layer, PLACE.outputs]
        for column in range(thread, actor + layers[1, layer, PLACE.outputs], threads):
            net = 0 if column < actor else 1
            j, offset = column - net * actor, net * layers[0, layer, PLACE.inputs] if layer else 0
            at, width = layers[net, layer, PLACE.weight] + j, layers[net, layer, PLACE.columns]
            bias = weights[p, layers[net, layer, PLACE.bias] + j]
            for r in range(TILE):
                sums[r] = bias
            inputs = layers[net, layer, PLACE.inputs]
            for k in range(0, inputs, AHEAD):
                for u in range(AHEAD):
                    ahead[u] = weights[p, at + (k + u) * width] if k + u < inputs else real(0)
                for u in range(AHEAD):
                    for r in range(TILE):
                        sums[r] += tiles[before, offset + min(k + u, inputs - 1), r] * ahead[u]
            for r in range(TILE):
                tiles[after, column, r] = sums[r] if last else real(math.tanh(sums[r]))

    @rule
    def evaluate(
        thread,
        threads,
        block,
        blocks,
        tiles,
        sums,
        ahead,
        layers,
        weights,
        x,
        t,
        steps,
        fresh,
        num_fresh,
        logits,
        values,
    ):
        """Computes logits and values of new observations; a block takes every so many tiles of a policy.

        tiles: scratch (2, values, TILE); sums: scratch (TILE,); ahead: scratch (AHEAD,); layers: (2, layers, 5), see
        `Place`; x: (P, O, N); logits: (P·T·N, A or more); values: (P·T·N,).
        """
        policies, n = fresh.shape
        p, share = block % policies, blocks // policies
        inputs, depth = x.shape[1], layers.shape[1]
        actions = layers[0, depth - 1, PLACE.outputs]
        for first in range(block // policies * TILE, num_fresh[p], share * TILE):
            size = min(TILE, num_fresh[p] - first)
            for k in range(thread, TILE * inputs, threads):
                j, r = k // TILE, k % TILE
                tiles[0, j, r] = x[p, j, fresh[p, first + min(r, size - 1)]]
            wait()
            for layer in range(depth):
                run_layer(thread, threads, layer, layers, weights, p, tiles, sums, ahead)
                wait()
            for k in range(thread, size * (actions + 1), threads):
                r, a = k // (actions + 1), k % (actions + 1)
                sample = (p * steps + t) * n + fresh[p, first + r]
                if a < actions:
                    logits[sample, a] = tiles[depth % 2, a, r]
                else:
                    values[sample] = tiles[depth % 2, actions, r]
            wait()

    return evaluate
