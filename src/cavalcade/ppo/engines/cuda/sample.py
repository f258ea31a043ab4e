"""The bodies of all kernels, for one sample or one environment, on CPU and GPU alike.

Networks are laid out features first, (P, features, samples), so that neighbouring threads read neighbouring numbers.
P policies, N environments each, T steps, A actions.
"""

import math
from typing import NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import mix, step_key, unit, word


class Terms(NamedTuple):
    """Rows of the loss terms per sample."""

    policy: int = 0
    value: int = 1
    entropy: int = 2
    kl: int = 3
    clipped: int = 4


TERMS = Terms()
_WORD = 64  # bits
_LEAST = np.float32(-3e38)  # below every logit; fastmath does not allow infinities


@rule
def allowed(bits, low, high, action):
    """Whether a mask of two words allows an action; bits: the bit of each action, −1 if it is always allowed."""
    bit = np.int64(bits[action])
    half = low if bit < _WORD else high
    return (bit < 0) | (half >> (bit & _WORD - 1) & 1 != 0)


@rule
def draw(i, bits, count, logits, values, masks, keys, clock, t, actions, store_action, store_log_prob, store_value):
    """Draws the action of environment i by its logits, and records it as step t.

    count: A; logits: (P, A or more, N); values: (P, 1, N); masks: (P·N, 2); clock: (P,); store_…: (P, T, N).
    """
    n = logits.shape[2]
    p, e = i // n, i % n
    real, low, high = np.float32, masks[i, 0], masks[i, 1]
    most, total = _LEAST, real(0)
    for a in range(count):  # without branches, so that a GPU can load ahead
        x = logits[p, a, e]
        most = max(most, x) if allowed(bits, low, high, a) else most
    for a in range(count):
        mass = real(math.exp(logits[p, a, e] - most))
        total += mass if allowed(bits, low, high, a) else real(0)
    target = unit(word(step_key(keys[i], 0, clock[p] + t), 0)) * total
    chosen, reached = -1, real(0)
    for a in range(count):
        mass = real(math.exp(logits[p, a, e] - most))
        here = allowed(bits, low, high, a) and (chosen < 0 or reached <= target)
        chosen = a if here else chosen
        reached += mass if here else real(0)
    actions[i] = chosen
    store_action[p, t, e] = chosen
    store_log_prob[p, t, e] = logits[p, chosen, e] - most - real(math.log(total))
    store_value[p, t, e] = values[p, 0, e]


@rule
def greedy(i, bits, count, logits, masks, actions):
    """The action of environment i with the largest logit among those that its mask allows, the first of equals."""
    n = logits.shape[2]
    p, e = i // n, i % n
    most, chosen = _LEAST, 0
    for a in range(count):
        x = logits[p, a, e]
        better = allowed(bits, masks[i, 0], masks[i, 1], a) and x > most
        chosen = a if better else chosen
        most = x if better else most
    actions[i] = chosen


@rule
def record_step(i, reward, truncated, t, end, rewards, ended, total, finals):
    """Records the result of step t of environment i; `end`: index of this step among those that end episodes, or −1.

    rewards, ended: (P, T, N); total: (P, N), reward so far; finals: (P, ends, N), returns of episodes that ended.
    """
    n = rewards.shape[2]
    p, e = i // n, i % n
    rewards[p, t, e] = reward[i]
    ended[p, t, e] = truncated[i]
    total[p, e] += reward[i]
    if truncated[i] and end >= 0:
        finals[p, end, e] = total[p, e]
        total[p, e] = 0


@rule
def discount(i, rewards, ended, gamma, running, totals):
    """Discounted sums of rewards so far of environment i, (P, T, N)."""
    n = rewards.shape[2]
    p, e = i // n, i % n
    total = running[p, e]
    for t in range(rewards.shape[1]):
        total = gamma[p] * total + rewards[p, t, e]
        totals[p, t, e] = total
        if ended[p, t, e]:
            total = 0.0
    running[p, e] = total


@rule
def shuffle_key(i, keys, counter, epoch, out):
    """A random sort key for environment i: sorting by it shuffles the environments.

    keys, counter: (P,); out: (P, N).
    """
    n = out.shape[1]
    p, e = i // n, i % n
    out[p, e] = np.int64(mix(step_key(keys[p], counter[p], epoch) + np.uint64(e)) >> np.uint64(1))


@rule
def loss(
    i,
    bits,
    count,
    c,
    samples,
    logits,
    values,
    order,
    first,
    masks,
    action,
    log_prob,
    value,
    advantage,
    returns,
    d_logits,
    d_values,
    terms,
):
    """The PPO loss of one sample: its gradient with respect to logits and value, and its terms.

    Sample i is step t of an environment of the minibatch: i = (p, t, j), environment order[p, first + j].
    count: A; c: coefficients (P,) each; logits, d_logits: (P, A or more, T·m); values, d_values: (P, 1, T·m);
    terms: (5, P, T·m); masks: (P·T·N, 2); the rest (P, T, N). The gradient is that of the mean over `samples`.
    """
    steps, n = action.shape[1], action.shape[2]
    b = logits.shape[2]
    m = b // steps
    p, k = i // b, i % b
    t, j = k // m, k % m
    e = order[p, first + j]
    row = (p * steps + t) * n + e
    real, low, high = np.float32, masks[row, 0], masks[row, 1]
    one, share = real(1), real(1) / real(samples)
    most, total, weighted = _LEAST, real(0), real(0)
    for a in range(count):  # without branches, so that a GPU can load ahead
        x = logits[p, a, k]
        most = max(most, x) if allowed(bits, low, high, a) else most
    for a in range(count):
        x = logits[p, a, k]
        mass = real(math.exp(x - most)) if allowed(bits, low, high, a) else real(0)
        total += mass
        weighted += mass * x
    log_total = most + real(math.log(total))
    entropy = log_total - weighted / total
    chosen = action[p, t, e]
    log_ratio = logits[p, chosen, k] - log_total - log_prob[p, t, e]
    ratio, clip, gain = real(math.exp(log_ratio)), c.clip[p], advantage[p, t, e]
    held = min(max(ratio, one - clip), one + clip)
    free = ratio * gain <= held * gain  # the unclipped term is the smaller one; the clipped one has no gradient
    slope, bonus = -gain * ratio if free else real(0), c.entropy[p]
    for a in range(count):
        log_p = logits[p, a, k] - log_total
        g = real(math.exp(log_p)) * (bonus * (log_p + entropy) - slope)
        g += slope if a == chosen else real(0)
        d_logits[p, a, k] = g * share if allowed(bits, low, high, a) else real(0)
    v, target, old, near = values[p, 0, k], returns[p, t, e], value[p, t, e], c.value_clip[p]
    square, d_value = (v - target) * (v - target), v - target
    if near > 0:
        bound = old + min(max(v - old, -near), near)
        if (bound - target) * (bound - target) > square:
            square = (bound - target) * (bound - target)
            d_value = bound - target if abs(v - old) < near else real(0)
    d_values[p, 0, k] = real(2) * c.value[p] * d_value * share
    terms[TERMS.policy, p, k] = -min(ratio * gain, held * gain)
    terms[TERMS.value, p, k] = square
    terms[TERMS.entropy, p, k] = entropy
    terms[TERMS.kl, p, k] = ratio - one - log_ratio
    terms[TERMS.clipped, p, k] = one if ratio > one + clip or ratio < one - clip else real(0)
