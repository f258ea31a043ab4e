"""Distinct observations of a rollout, and the samples that share them.

`Table` caches, per policy, each observation seen since the weights last changed, with the network's outputs. `Groups`
maps the samples of a rollout to those with the same observation, mask and action, and `reduce` sums them per minibatch.
The first axis of arrays is policies; they are independent, so loops over them run in parallel.
"""

from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import kernel, routine, rule, thread_id
from cavalcade.core.rng import GOLDEN, mix
from cavalcade.core.scalar import exponentials
from cavalcade.ppo.engines.cpu.gradient import NONE
from cavalcade.ppo.engines.cpu.network import TILE, fold_context, forward, load

_PARTS = 8  # of a policy's new rows, distributed over threads


class Table(NamedTuple):
    """A hash table of observations by their words, with open addressing; one row per distinct observation."""

    slots: np.ndarray  # (P, slots) int32: row, or NONE; a power of two, at least twice the rows
    words: np.ndarray  # (P, rows, W) int64
    x: np.ndarray  # (P, rows, O): the observation itself
    weight: np.ndarray  # (P, rows, padded actions): exp(logits − top), unnormalised probabilities
    value: np.ndarray  # (P, rows)
    count: np.ndarray  # (P,) int64: rows in use
    ready: np.ndarray  # (P,) int64: rows whose weight and value are computed


@rule
def hash_word(h, w):
    """Updates a hash with one more integer."""
    return mix(h + np.uint64(w) + GOLDEN)


@kernel(parallel=True, numerics=True)
def find_and_evaluate(net, table, weights, inputs, words, x, work, wanted, rows):
    """Finds the row of each environment's observation; adds new rows and computes their network outputs.

    words: (P·N, W); x: (P·N, O); wanted: (P·N,) bool, others are skipped; rows: (P·N,) int32, the result. The table
    must have room for all.
    """
    policies, size = table.slots.shape
    n = rows.size // policies
    for p in numba.prange(policies):
        find_policy_rows(table, p, size - 1, words, x, wanted, rows, p * n, (p + 1) * n)
    if any_new(table):
        for task in numba.prange(policies * _PARTS):
            evaluate_part(net, table, task // _PARTS, task % _PARTS, weights, inputs, work)
        for p in numba.prange(policies):
            mark_ready(table, p)


@rule
def any_new(table):
    """Whether some row has no outputs yet."""
    new = False
    for p in range(table.count.size):
        new = new or table.count[p] > table.ready[p]
    return new


@rule
def find_policy_rows(table, p, slot_mask, words, x, wanted, rows, start, stop):
    for e in range(start, stop):
        if wanted[e]:
            rows[e] = find_row(table, p, slot_mask, words, x, e)


@rule
def find_row(table, p, slot_mask, words, x, e):
    """The row of one observation, added if it is new."""
    width = words.shape[1]
    h = np.uint64(0)
    for w in range(width):
        h = hash_word(h, words[e, w])
    slot = np.int64(h & np.uint64(slot_mask))
    while True:
        row = table.slots[p, slot]
        if row == NONE:
            break
        same = True
        for w in range(width):
            same = same and table.words[p, row, w] == words[e, w]
        if same:
            return row
        slot = slot + 1 & slot_mask
    row = np.int32(table.count[p])
    table.count[p] += 1
    table.slots[p, slot] = row
    for w in range(width):
        table.words[p, row, w] = words[e, w]
    for j in range(x.shape[1]):
        table.x[p, row, j] = x[e, j]
    return row


@rule
def mark_ready(table, p):
    """Marks all rows of a policy as computed."""
    table.ready[p] = table.count[p]


@routine
def evaluate_part(net, table, p, part, all_weights, inputs, works):
    """Computes weight and value of a part of a policy's new rows."""
    ready, new = table.ready[p], table.count[p] - table.ready[p]
    start, stop = ready + part * new // _PARTS, ready + (part + 1) * new // _PARTS
    if stop == start:
        return
    weights, work, x = all_weights[p], works[thread_id()], table.x[p]
    fold_context(net, weights, inputs, p, work)
    values, padded, last = net.inputs, net.padded, net.layers - 1
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        for i in range(size):
            load(x, first + i, inputs, p, values, work, net.x + i * values)
        forward(net, 0, weights, work, size)
        forward(net, 1, weights, work, size)
        for i in range(size):
            logits = work[net.output[0, last] + i * padded :][:padded]
            exponentials(logits, net.actions, padded, table.weight[p, first + i])
            table.value[p, first + i] = work[net.output[1, last] + i]


@kernel(parallel=True)
def forget(table):
    """Clears the table, after the weights have changed."""
    for p in numba.prange(table.count.size):
        forget_policy(table, p)


@rule
def forget_policy(table, p):
    fill(table.slots, p, table.slots.shape[1], NONE)
    table.count[p] = 0
    table.ready[p] = 0


@rule
def fill(array, p, n, value):
    """Sets the first n entries of row p."""
    for i in range(n):
        array[p, i] = value


@kernel(parallel=True)
def rehash(table):
    """Rebuilds the slots from the rows, after the arrays have grown."""
    for p in numba.prange(table.count.size):
        rehash_policy(table, p, table.slots.shape[1] - 1)


@rule
def rehash_policy(table, p, slot_mask):
    fill(table.slots, p, slot_mask + 1, NONE)
    for row in range(table.count[p]):
        h = np.uint64(0)
        for w in range(table.words.shape[2]):
            h = hash_word(h, table.words[p, row, w])
        slot = np.int64(h & np.uint64(slot_mask))
        while table.slots[p, slot] != NONE:
            slot = slot + 1 & slot_mask
        table.slots[p, slot] = row


class Groups(NamedTuple):
    """Pairs and groups of samples; those of a row are linked lists."""

    pair_slots: np.ndarray  # (P, slots) int32
    group_slots: np.ndarray  # (P, slots) int32
    pairs: np.ndarray  # (P,) int64: number of pairs
    groups: np.ndarray  # (P,) int64
    group_of: np.ndarray  # (P, B) int32: the group of a sample
    pair_row: np.ndarray  # (P, B) int32
    group_pair: np.ndarray  # (P, B) int32


@kernel(parallel=True)
def find_groups(g, b, rows, num_rows, mask_words, actions, log_probs):
    """Sorts the samples of a rollout into pairs and groups; writes the fields that do not change between minibatches.

    rows, actions, log_probs: (P, B); mask_words: (P, B, V); num_rows: (P,).
    """
    for p in numba.prange(rows.shape[0]):
        find_policy_groups(g, b, p, rows, num_rows, mask_words, actions, log_probs)


@rule
def find_policy_groups(g, b, p, rows, num_rows, mask_words, actions, log_probs):
    fill(g.pair_slots, p, g.pair_slots.shape[1], NONE)
    fill(g.group_slots, p, g.group_slots.shape[1], NONE)
    fill(b.first_pair, p, num_rows[p], NONE)
    g.pairs[p] = 0
    g.groups[p] = 0
    for i in range(rows.shape[1]):
        q = find_pair(g, b, p, rows, mask_words, i)
        g.group_of[p, i] = find_group(g, b, p, q, actions, log_probs, i)


@rule
def find_pair(g, b, p, rows, mask_words, i):
    """The pair of a sample: same row, same mask. A pair's mask is that of its first sample."""
    slot_mask = g.pair_slots.shape[1] - 1
    row = rows[p, i]
    h = hash_word(np.uint64(0), row)
    for v in range(mask_words.shape[2]):
        h = hash_word(h, mask_words[p, i, v])
    slot = np.int64(h & np.uint64(slot_mask))
    while True:
        q = g.pair_slots[p, slot]
        if q == NONE:
            break
        same = g.pair_row[p, q] == row
        first = b.pair_mask[p, q]
        for v in range(mask_words.shape[2]):
            same = same and mask_words[p, first, v] == mask_words[p, i, v]
        if same:
            return q
        slot = slot + 1 & slot_mask
    q = np.int32(g.pairs[p])
    g.pairs[p] += 1
    g.pair_slots[p, slot] = q
    g.pair_row[p, q] = row
    b.pair_mask[p, q] = i
    b.first_group[p, q] = NONE
    b.next_pair[p, q] = b.first_pair[p, row]
    b.first_pair[p, row] = q
    return q


@rule
def find_group(g, b, p, q, actions, log_probs, i):
    """The group of a sample: same pair, same action."""
    slot_mask = g.group_slots.shape[1] - 1
    action = actions[p, i]
    slot = np.int64(hash_word(hash_word(np.uint64(0), q), action) & np.uint64(slot_mask))
    while True:
        k = g.group_slots[p, slot]
        if k == NONE:
            break
        if g.group_pair[p, k] == q and b.action[p, k] == action:
            return k
        slot = slot + 1 & slot_mask
    k = np.int32(g.groups[p])
    g.groups[p] += 1
    g.group_slots[p, slot] = k
    g.group_pair[p, k] = q
    b.action[p, k] = action
    b.log_prob[p, k] = log_probs[p, i]
    b.next_group[p, k] = b.first_group[p, q]
    b.first_group[p, q] = k
    return k


@kernel(parallel=True)
def reduce(g, b, rows, num_rows, order, start, stop, advantages, returns):
    """Sums the samples order[start:stop] by row, pair and group.

    rows, order, advantages, returns: (P, B).
    """
    for p in numba.prange(rows.shape[0]):
        reduce_policy(g, b, p, rows, num_rows[p], order, start, stop, advantages, returns)


@rule
def reduce_policy(g, b, p, rows, num_rows, order, start, stop, advantages, returns):
    """Writes the sums of one policy, and the list of its rows with samples."""
    fill(b.row_n, p, num_rows, 0)
    fill(b.row_return, p, num_rows, 0)
    fill(b.row_square, p, num_rows, 0)
    fill(b.pair_n, p, g.pairs[p], 0)
    fill(b.group_n, p, g.groups[p], 0)
    fill(b.plus, p, g.groups[p], 0)
    fill(b.minus, p, g.groups[p], 0)
    for j in range(start, stop):
        i = order[p, j]
        k, row, advantage = g.group_of[p, i], rows[p, i], advantages[p, i]
        b.group_n[p, k] += 1
        if advantage > 0:
            b.plus[p, k] += advantage
        else:
            b.minus[p, k] += advantage
        b.row_n[p, row] += 1
        b.row_return[p, row] += returns[p, i]
        b.row_square[p, row] += returns[p, i] * returns[p, i]
    for k in range(g.groups[p]):
        b.pair_n[p, g.group_pair[p, k]] += b.group_n[p, k]
    found = 0
    for row in range(num_rows):
        if b.row_n[p, row] > 0:
            b.rows[p, found] = row
            found += 1
    b.num_rows[p] = found
