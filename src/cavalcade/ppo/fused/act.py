"""Drawing actions: from remembered rows, or by a forward pass over every environment."""

import math

import numba
import numpy as np

from cavalcade.jit import formula, kernel, routine
from cavalcade.ppo.fused.network import TILE, fold_context, forward
from cavalcade.ppo.fused.scalar import exponentials
from cavalcade.rng import step_key, unit, word

_BLOCK = 16
_PARTS = 16  # pieces of the batch that threads take in turn
_ACTION = 0  # purpose of a policy's draw


@formula
def draw(weight, mask, actions, padded, target, chosen):
    """An action by unnormalised probabilities under a mask, and its log-probability.

    `target` in [0, 1) is where in the cumulative distribution to look; below 0 the likeliest action is taken.
    `chosen` is scratch for the masked weights.
    """
    for k in range(actions):
        chosen[k] = weight[k] if mask[k] else weight.dtype.type(0)
    total = weight.dtype.type(0)
    for k in range(padded):
        total += chosen[k]
    action = 0
    if target < 0:
        for k in range(1, actions):
            if chosen[k] > chosen[action]:
                action = k
    else:
        rest, block = target * total, 0
        while block < padded - _BLOCK:
            mass = weight.dtype.type(0)
            for k in range(_BLOCK):
                mass += chosen[block + k]
            if mass > rest:
                break
            rest -= mass
            block += _BLOCK
        for k in range(block, actions):
            if chosen[k] > 0:
                action = k  # rounding can leave a rest behind the last: the last possible action takes it
                if chosen[k] > rest:
                    break
                rest -= chosen[k]
    return action, math.log(chosen[action] / total)


@formula
def draw_target(keys, e, clock, greedy):
    """Where to look in the cumulative distribution: a hash of the environment's key and the time."""
    return -1.0 if greedy else unit(word(step_key(keys[e], 0, clock), _ACTION))


@kernel(parallel=True)
def act_by_rows(net, table, rows, mask, keys, clock, greedy, scratch, actions, log_probs, values):
    """Actions of all environments from the rows of their observations.

    rows, keys, actions, log_probs, values: (P·N,); mask: (P·N, A); scratch: (threads, 3, padded actions).
    """
    for part in numba.prange(_PARTS):
        act_rows_part(net, table, rows, mask, keys, clock, greedy, scratch, actions, log_probs, values, part)


@routine
def act_rows_part(net, table, rows, mask, keys, clock, greedy, scratch, actions, log_probs, values, part):
    """Actions of a part of the environments."""
    n = rows.size // table.count.size
    chosen = scratch[numba.get_thread_id(), 0]
    for e in range(part * rows.size // _PARTS, (part + 1) * rows.size // _PARTS):
        p, row = e // n, rows[e]
        target = draw_target(keys, e, clock, greedy)
        actions[e], log_probs[e] = draw(table.weight[p, row], mask[e], net.actions, net.padded, target, chosen)
        values[e] = table.value[p, row]


@kernel(parallel=True, numerics=True)
def act_plain(net, weights, context, x, mask, keys, clock, greedy, work, scratch, actions, log_probs, values):
    """Actions of all environments by a forward pass over each.

    x: (P·N, O); the rest as in `act_by_rows`.
    """
    policies = weights.shape[0]
    n = keys.size // policies
    cuts = max(1, _PARTS // policies)
    for task in numba.prange(policies * cuts):
        p, cut = task // cuts, task % cuts
        act_part(
            net, p, weights, context, x, mask, keys, clock, greedy, p * n + cut * n // cuts,
            p * n + (cut + 1) * n // cuts, work, scratch, actions, log_probs, values,
        )  # fmt: skip


@routine
def act_part(
    net, p, all_weights, contexts, x, mask, keys, clock, greedy, start, stop, works, scratches, actions, log_probs, values
):  # fmt: skip
    """Actions of environments start … stop − 1, all of policy p."""
    thread = numba.get_thread_id()
    weights, context, work, scratch = all_weights[p], contexts[p], works[thread], scratches[thread]
    fold_context(net, weights, context, work)
    inputs, padded, last = net.inputs, net.padded, net.layers - 1
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        load(x, first, size, inputs, work[net.x :])
        forward(net, 0, weights, work, size)
        forward(net, 1, weights, work, size)
        for i in range(size):
            e = first + i
            exponentials(work[net.output[0, last] + i * padded :][:padded], net.actions, padded, scratch[1])
            target = draw_target(keys, e, clock, greedy)
            actions[e], log_probs[e] = draw(scratch[1], mask[e], net.actions, padded, target, scratch[0])
            values[e] = work[net.output[1, last] + i]


@formula
def load(x, first, size, inputs, into):
    """Observations of some environments, converted, into the work array."""
    for i in range(size):
        for j in range(inputs):
            into[i * inputs + j] = x[first + i, j]


@kernel(parallel=True, numerics=True)
def values_plain(net, weights, context, x, wanted, work, values):
    """Values of the observations of environments that are wanted, (P·N,)."""
    policies = weights.shape[0]
    n = values.size // policies
    cuts = max(1, _PARTS // policies)
    for task in numba.prange(policies * cuts):
        p, cut = task // cuts, task % cuts
        value_part(
            net, p, weights, context, x, p * n + cut * n // cuts, p * n + (cut + 1) * n // cuts, work, wanted, values
        )


@routine
def value_part(net, p, all_weights, contexts, x, start, stop, works, wanted, values):
    """Values of environments start … stop − 1, all of policy p."""
    if not np.any(wanted[start:stop]):
        return
    weights, context, work = all_weights[p], contexts[p], works[numba.get_thread_id()]
    fold_context(net, weights, context, work)
    last = net.layers - 1
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        load(x, first, size, net.inputs, work[net.x :])
        forward(net, 1, weights, work, size)
        for i in range(size):
            if wanted[first + i]:
                values[first + i] = work[net.output[1, last] + i]
