"""The bodies of kernels for one environment or one weight, on CPU and GPU alike.

P policies, N environments each, T steps.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import mix, step_key
from cavalcade.ppo.update import BETA1, BETA2, EPSILON

_WORD = 64  # bits
TOGETHER = 8  # values that a thread unpacks: divisions of long integers are slow


class Returned(NamedTuple):
    """What games return, (P·N, …), and where a rollout keeps it; arrays or tensors."""

    words: Any  # (P·N, W): observations
    reward: Any
    truncated: Any
    kept_words: Any  # (P·T·N, W)
    rewards: Any  # (P, T, N)
    ended: Any  # (P, T, N)
    total: Any  # (P, N): reward so far
    finals: Any  # (P, ends, N): returns of episodes that ended


@rule
def keep(i, t, end, x):
    """Keeps what environment i shows before step t, and what step t − 1 brought; x: `Returned`.

    end: index of step t − 1 among those that end episodes, or −1.
    """
    steps, n = x.rewards.shape[1], x.rewards.shape[2]
    p, e = i // n, i % n
    if t < steps:
        for w in range(x.words.shape[1]):
            x.kept_words[(p * steps + t) * n + e, w] = x.words[i, w]
    if t > 0:
        reward, over = x.reward[i], x.truncated[i]
        total = x.total[p, e] + reward
        x.rewards[p, t - 1, e] = reward
        x.ended[p, t - 1, e] = over
        if over and end >= 0:
            x.finals[p, end, e] = total
            total = 0.0
        x.total[p, e] = total


@rule
def unpack(i, words, places, x):
    """Part i of the values of observations, `TOGETHER` of them; words: (P, b, W); places: see `DeviceGames`.

    x: (P, nets, O, b), the same values for each net.
    """
    count, b = x.shape[2], x.shape[3]
    parts = (count + TOGETHER - 1) // TOGETHER
    k, rest = i % b, i // b
    p, first = rest // parts, rest % parts * TOGETHER
    for j in range(first, min(first + TOGETHER, count)):
        value = value_of(words, p, k, places, j, x.dtype.type)
        for net in range(x.shape[1]):
            x[p, net, j, k] = value


@rule
def value_of(words, p, k, places, j, real):
    """Value j of an observation: a bit of its words, or a word as a fraction; words: (P, b, W)."""
    at, whole = np.int64(places[j, 0]), places[j, 1]
    word = words[p, k, at // _WORD]
    return real(word) / real(whole) if whole > 0 else real(word >> at % _WORD & 1)


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
def adam(i, weights, gradient, first, second, steps, rates, limits, norms, active):
    """One step of Adam for weight i of all policies, after clipping the gradient's norm; see `update.adam_step`.

    weights, gradient, first, second: (P, D); the rest (P,); steps: with this one.
    """
    size = weights.shape[1]
    p, d = i // size, i % size
    if active[p]:
        real = weights.dtype.type
        g, limit, n = gradient[p, d], limits[p], real(steps[p])
        if limit > 0:
            g *= min(limit / (norms[p] + real(1e-6)), real(1))
        m = real(BETA1) * first[p, d] + real(1 - BETA1) * g
        v = real(BETA2) * second[p, d] + real(1 - BETA2) * g * g
        first[p, d] = m
        second[p, d] = v
        rate = rates[p] / (real(1) - real(math.pow(real(BETA1), n)))
        root = real(math.sqrt(v)) / real(math.sqrt(real(1) - real(math.pow(real(BETA2), n))))
        weights[p, d] -= rate * m / (root + real(EPSILON))
