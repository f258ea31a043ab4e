"""Samples actions: from the table of distinct observations, or by a forward pass over every environment."""

import math
from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel, routine, thread_id
from cavalcade.core.scalar import exponentials
from cavalcade.ppo.draws import draw_target
from cavalcade.ppo.engines.cpu.network import TILE, fold_context, forward, load
from cavalcade.ppo.engines.cpu.rows import find_and_evaluate

_BLOCK = 16
_PARTS = 16  # pieces of the batch that threads take in turn


@formula
def draw(weight, mask, actions, padded, target, chosen):
    """An action from unnormalised probabilities under a mask, and its log-probability.

    `target` in [0, 1) is inverted through the cumulative distribution; below 0 the action is greedy. `chosen` is
    scratch for the masked weights. If the mask leaves no weight at all, every allowed action gets the same.
    """
    real = weight.dtype.type
    for k in range(actions):
        chosen[k] = weight[k] if mask[k] else real(0)
    total = real(0)
    for k in range(padded):
        total += chosen[k]
    if not total > 0:
        for k in range(actions):
            chosen[k] = real(mask[k])
            total += chosen[k]
    action = 0
    if target < 0:
        for k in range(1, actions):
            if chosen[k] > chosen[action]:
                action = k
    else:
        rest, block = target * total, 0
        while block < padded - _BLOCK:
            mass = real(0)
            for k in range(_BLOCK):
                mass += chosen[block + k]
            if mass > rest:
                break
            rest -= mass
            block += _BLOCK
        for k in range(block, actions):
            if chosen[k] > 0:
                action = k  # rounding can leave a remainder after the last: the last possible action takes it
                if chosen[k] > rest:
                    break
                rest -= chosen[k]
    return action, math.log(chosen[action] / total)


class Store(NamedTuple):
    """The parts of a rollout that acting writes, (P, T, N, …)."""

    action: np.ndarray
    log_prob: np.ndarray
    value: np.ndarray
    mask: np.ndarray  # (P, T, N, A)
    observation: np.ndarray  # (P, T, N, O): without deduplication
    row: np.ndarray  # (P, T, N): with deduplication
    mask_words: np.ndarray  # (P, T, N, V): with deduplication


@kernel(parallel=True, numerics=True)
def act_by_rows(
    net, table, weights, inputs, words, x, mask, mask_words, keys, clock, work, scratch, wanted, rows, actions, store, t
):
    """Actions of the wanted environments from the table rows of their observations, recorded as step t.

    words: (P·N, W); x: (P·N, O); mask: (P·N, A); mask_words: (P·N, V); wanted, keys, rows, actions: (P·N,);
    clock: (P,).
    """
    find_and_evaluate(net, table, weights, inputs, words, x, work, wanted, rows)
    for part in numba.prange(_PARTS):
        act_rows_part(net, table, wanted, rows, mask, mask_words, keys, clock, scratch, actions, store, t, part)


@routine
def act_rows_part(net, table, wanted, rows, mask, mask_words, keys, clock, scratch, actions, store, t, part):
    n = rows.size // table.count.size
    chosen = scratch[thread_id(), 0]
    for e in range(part * rows.size // _PARTS, (part + 1) * rows.size // _PARTS):
        if not wanted[e]:
            continue
        p, i, row = e // n, e % n, rows[e]
        target = draw_target(keys, e, clock[p], 0)
        action, log_prob = draw(table.weight[p, row], mask[e], net.actions, net.padded, target, chosen)
        actions[e] = action
        record_step(store, p, t, i, action, log_prob, table.value[p, row], mask, e)
        store.row[p, t, i] = row
        for v in range(mask_words.shape[1]):
            store.mask_words[p, t, i, v] = mask_words[e, v]


@formula
def record_step(store, p, t, i, action, log_prob, value, mask, e):
    """Writes the fields that every sample has."""
    store.action[p, t, i] = action
    store.log_prob[p, t, i] = log_prob
    store.value[p, t, i] = value
    for k in range(mask.shape[1]):
        store.mask[p, t, i, k] = mask[e, k]


@kernel(parallel=True, numerics=True)
def act_plain(net, weights, inputs, x, mask, keys, clock, work, scratch, actions, store, t, start, stop):
    """Actions of environments start … stop − 1 of each policy by a forward pass over each, recorded as step t.

    x: (P·N, O); the rest as in `act_by_rows`.
    """
    policies = weights.shape[0]
    n, size = keys.size // policies, stop - start
    cuts = max(1, _PARTS // policies)
    for task in numba.prange(policies * cuts):
        p, cut = task // cuts, task % cuts
        act_part(
            net, p, n, weights, inputs, x, mask, keys, clock, start + cut * size // cuts,
            start + (cut + 1) * size // cuts, work, scratch, actions, store, t,
        )  # fmt: skip


@routine
def act_part(net, p, n, all_weights, inputs, x, mask, keys, clock, start, stop, works, scratches, actions, store, t):
    """Actions of environments start … stop − 1 of policy p."""
    thread = thread_id()
    weights, work, scratch = all_weights[p], works[thread], scratches[thread]
    fold_context(net, weights, inputs, p, work)
    size, padded, last = net.inputs, net.padded, net.layers - 1
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        for i in range(rows):
            load(x, p * n + first + i, inputs, p, size, work, net.x + i * size)
        forward(net, 0, weights, work, rows)
        forward(net, 1, weights, work, rows)
        for i in range(rows):
            e = p * n + first + i
            exponentials(work[net.output[0, last] + i * padded :][:padded], net.actions, padded, scratch[1])
            target = draw_target(keys, e, clock[p], 0)
            action, log_prob = draw(scratch[1], mask[e], net.actions, padded, target, scratch[0])
            actions[e] = action
            record_step(store, p, t, first + i, action, log_prob, work[net.output[1, last] + i], mask, e)
            for j in range(size):
                store.observation[p, t, first + i, j] = x[e, j]


@kernel(parallel=True, numerics=True)
def choose(net, weights, inputs, x, mask, keys, clock, work, scratch, actions):
    """Actions of all environments, not recorded; greedy with a negative clock."""
    policies = weights.shape[0]
    n = keys.size // policies
    cuts = max(1, _PARTS // policies)
    for task in numba.prange(policies * cuts):
        p, cut = task // cuts, task % cuts
        choose_part(
            net, p, n, weights, inputs, x, mask, keys, clock, cut * n // cuts, (cut + 1) * n // cuts, work, scratch,
            actions,
        )  # fmt: skip


@routine
def choose_part(net, p, n, all_weights, inputs, x, mask, keys, clock, start, stop, works, scratches, actions):
    """Actions of environments start … stop − 1 of policy p."""
    thread = thread_id()
    weights, work, scratch = all_weights[p], works[thread], scratches[thread]
    fold_context(net, weights, inputs, p, work)
    size, padded, last = net.inputs, net.padded, net.layers - 1
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        for i in range(rows):
            load(x, p * n + first + i, inputs, p, size, work, net.x + i * size)
        forward(net, 0, weights, work, rows)
        for i in range(rows):
            e = p * n + first + i
            exponentials(work[net.output[0, last] + i * padded :][:padded], net.actions, padded, scratch[1])
            actions[e], _ = draw(scratch[1], mask[e], net.actions, padded, draw_target(keys, e, clock, 0), scratch[0])


@kernel(parallel=True, numerics=True)
def values_plain(net, weights, inputs, x, wanted, work, values):
    """Values of the observations of the wanted environments, (P·N,)."""
    policies = weights.shape[0]
    n = values.size // policies
    cuts = max(1, _PARTS // policies)
    for task in numba.prange(policies * cuts):
        p, cut = task // cuts, task % cuts
        value_part(
            net, p, weights, inputs, x, p * n + cut * n // cuts, p * n + (cut + 1) * n // cuts, work, wanted, values
        )


@routine
def value_part(net, p, all_weights, inputs, x, start, stop, works, wanted, values):
    """Values of environments start … stop − 1, all of policy p."""
    asked = False
    for e in range(start, stop):
        asked = asked or wanted[e]
    if not asked:
        return
    weights, work = all_weights[p], works[thread_id()]
    fold_context(net, weights, inputs, p, work)
    size, last = net.inputs, net.layers - 1
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        for i in range(rows):
            load(x, first + i, inputs, p, size, work, net.x + i * size)
        forward(net, 1, weights, work, rows)
        for i in range(rows):
            if wanted[first + i]:
                values[first + i] = work[net.output[1, last] + i]
