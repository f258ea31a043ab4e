"""The PPO loss and its gradient over reduced samples, for a population, on CPU threads.

Samples with the same observation are one *row*: the network runs once for it. Samples of a row with the same action
mask are a *pair*: one masked softmax. Samples of a pair with the same action are a *group*: they have the same old and
new log-probability, so the clipped policy loss needs only the sum of their positive advantages and that of the
negative ones. The value loss needs n, ΣR and ΣR² of a row, the entropy the count of a pair. Where nothing repeats, each
sample is its own row, pair and group, and this is ordinary PPO.

    policy  −1/b Σ_g [A⁺ min(ρ, 1 + ε) + A⁻ max(ρ, 1 − ε)],  ρ = exp(log π(a) − log π_old(a))
    value   c_v/b Σ_r (n v² − 2 v ΣR + ΣR²)
    entropy −c_e/b Σ_q n H(π)

The gradient is summed over a fixed number of parts in a fixed order, so it does not depend on the number of threads.
"""

import math
from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel, routine, thread_id
from cavalcade.core.scalar import exp, exponentials
from cavalcade.ppo.engines.cpu.network import TILE, backward, context_gradient, fold_context, forward, load
from cavalcade.ppo.objective import METRICS

_POLICY, _VALUE, _ENTROPY, _KL, _CLIPPED = range(len(METRICS))
NONE = -1
_LEAST_TOTAL = np.float32(1e-25)


class Batch(NamedTuple):
    """The samples of a minibatch, reduced; row p of each array belongs to policy p."""

    x: np.ndarray  # (P, rows, O): observations
    rows: np.ndarray  # (P, rows) int32: the rows with samples in this minibatch …
    num_rows: np.ndarray  # (P,) int64: … and their number
    row_n: np.ndarray  # (P, rows): samples of a row
    row_return: np.ndarray  # (P, rows): ΣR
    row_square: np.ndarray  # (P, rows): ΣR²
    row_value: np.ndarray  # (P, rows): value when the samples were collected
    first_pair: np.ndarray  # (P, rows) int32
    next_pair: np.ndarray  # (P, pairs) int32
    pair_mask: np.ndarray  # (P, pairs) int32: row of `masks`
    pair_n: np.ndarray  # (P, pairs)
    first_group: np.ndarray  # (P, pairs) int32
    next_group: np.ndarray  # (P, groups) int32
    action: np.ndarray  # (P, groups) int32
    group_n: np.ndarray  # (P, groups)
    plus: np.ndarray  # (P, groups): Σ of positive advantages
    minus: np.ndarray  # (P, groups): Σ of negative advantages
    log_prob: np.ndarray  # (P, groups): when the samples were collected
    masks: np.ndarray  # (P, masks, A) bool


@formula
def pair_loss(b, c, p, q, scale, logits, weight, top, actions, padded, mask, allowed, delta, metrics):
    """Adds a pair's policy and entropy loss to the metrics and their gradient to its row's `delta`.

    weight: exp(logits − top) of the row, zero beyond the actions. If it underflows for all allowed actions, the
    exponentials are recomputed relative to the largest allowed logit. mask, allowed: scratch.
    """
    real = logits.dtype.type
    m = b.pair_mask[p, q]
    for k in range(actions):
        mask[k] = b.masks[p, m, k]
    total, moment = real(0), real(0)
    for k in range(padded):
        allowed[k] = mask[k] * weight[k]
        total += allowed[k]
        moment += allowed[k] * logits[k]
    if total < _LEAST_TOTAL:
        top = largest_allowed(logits, mask, actions)
        total, moment = real(0), real(0)
        for k in range(padded):
            allowed[k] = mask[k] * exp(min(logits[k] - top, real(0)))
            total += allowed[k]
            moment += allowed[k] * logits[k]
    log_total = top + real(math.log(total))
    entropy = log_total - moment / total
    clip, pull = c.clip[p], real(0)
    g = b.first_group[p, q]
    while g != NONE:
        n = b.group_n[p, g]
        if n > 0:
            action = b.action[p, g]
            log_ratio = logits[action] - log_total - b.log_prob[p, g]
            ratio = real(math.exp(log_ratio))
            plus, minus = b.plus[p, g], b.minus[p, g]
            metrics[_POLICY] -= scale * (plus * min(ratio, 1 + clip) + minus * max(ratio, 1 - clip))
            metrics[_KL] += scale * n * (ratio - 1 - log_ratio)
            metrics[_CLIPPED] += scale * n * (ratio > 1 + clip or ratio < 1 - clip)
            push = scale * ratio * (plus * real(ratio <= 1 + clip) + minus * real(ratio >= 1 - clip))
            delta[action] -= push
            pull += push
        g = b.next_group[p, g]
    n = b.pair_n[p, q]
    metrics[_ENTROPY] += scale * n * entropy
    slope = scale * n * c.entropy[p] / total
    level = pull / total + slope * (entropy - log_total)
    for k in range(padded):
        delta[k] += allowed[k] * (level + slope * logits[k])


@formula
def largest_allowed(logits, mask, actions):
    """The largest logit that the mask allows."""
    top = logits.dtype.type(-1e30)
    for k in range(actions):
        if mask[k] > 0:
            top = max(top, logits[k])
    return top


@formula
def value_loss(b, c, p, r, scale, value, metrics):
    """Adds a row's value loss to the metrics; returns its gradient."""
    n, returns, squares = b.row_n[p, r], b.row_return[p, r], b.row_square[p, r]
    loss = n * value * value - 2 * value * returns + squares
    slope = 2 * (n * value - returns)
    limit = c.value_clip[p]
    if limit > 0:
        old = b.row_value[p, r]
        held = old + min(max(value - old, -limit), limit)
        other = n * held * held - 2 * held * returns + squares
        if other > loss:
            loss = other
            slope = 2 * (n * held - returns) if abs(value - old) < limit else 0 * slope
    metrics[_VALUE] += scale * loss
    return scale * c.value[p] * slope


@formula
def clear(array):
    """Sets an array to zero; assigning to a slice would take seconds to compile."""
    for i in range(array.size):
        array[i] = 0


@routine
def part_gradient(net, b, c, p, cut, samples, all_weights, inputs, active, works, scratches, parts, all_metrics):
    """Loss and gradient of a part of one policy's rows."""
    gradient, metrics = parts[p, cut], all_metrics[p, cut]
    clear(gradient)
    clear(metrics)
    if not active[p]:
        return
    thread = thread_id()
    weights, work, scratch = all_weights[p], works[thread], scratches[thread]
    n, cuts = b.num_rows[p], parts.shape[1]
    start, stop = cut * n // cuts, (cut + 1) * n // cuts
    scale = weights.dtype.type(1 / samples[p])
    actions, padded, values, last = net.actions, net.padded, net.inputs, net.layers - 1
    mask, weight, allowed = scratch[0], scratch[1], scratch[2]
    x, rows = b.x[p], b.rows[p]
    fold_context(net, weights, inputs, p, work)
    for first in range(start, stop, TILE):
        size = min(TILE, stop - first)
        for i in range(size):
            load(x, rows[first + i], inputs, p, values, work, net.x + i * values)
        forward(net, 0, weights, work, size)
        forward(net, 1, weights, work, size)
        for i in range(size):
            r = rows[first + i]
            logits = work[net.output[0, last] + i * padded :][:padded]
            delta = work[net.delta[0, last] + i * padded :][:padded]
            clear(delta)
            top = exponentials(logits, actions, padded, weight)
            q = b.first_pair[p, r]
            while q != NONE:
                if b.pair_n[p, q] > 0:
                    pair_loss(b, c, p, q, scale, logits, weight, top, actions, padded, mask, allowed, delta, metrics)
                q = b.next_pair[p, q]
            value = work[net.output[1, last] + i]
            work[net.delta[1, last] + i] = value_loss(b, c, p, r, scale, value, metrics)
        backward(net, 0, weights, work, size, gradient)
        backward(net, 1, weights, work, size, gradient)


@kernel(parallel=True, numerics=True)
def gradients(net, b, c, samples, weights, inputs, active, work, scratch, parts, metrics, gradient):
    """Loss and gradient of the mean over a minibatch, for every active policy.

    net: layout of the networks; b: the minibatch; c: coefficients of the loss; samples: number that the mean is over,
    (P,); weights: (P, D); inputs: context and normalisation; active: policies to compute, (P,) bool.
    Overwritten: work (threads, work size); scratch (threads, 3, padded actions), zero beyond the actions; parts
    (P, parts, D); metrics (P, parts, metrics), sums in `metrics[:, 0]`; gradient (P, D), the result.
    """
    policies, cuts = parts.shape[0], parts.shape[1]
    for task in numba.prange(policies * cuts):
        part_gradient(
            net, b, c, task // cuts, task % cuts, samples, weights, inputs, active, work, scratch, parts, metrics
        )
    for p in numba.prange(policies):
        sum_parts(net, p, inputs, active, parts, metrics, gradient)


@routine
def sum_parts(net, p, inputs, active, parts, metrics, gradient):
    """Sums one policy's gradient and metrics over parts."""
    if active[p]:
        into = gradient[p]
        for k in range(into.size):
            into[k] = parts[p, 0, k]
        for cut in range(1, parts.shape[1]):
            for k in range(into.size):
                into[k] += parts[p, cut, k]
            for k in range(metrics.shape[2]):
                metrics[p, 0, k] += metrics[p, cut, k]
        context_gradient(net, inputs, p, into)
