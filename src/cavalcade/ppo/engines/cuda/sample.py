"""The bodies of kernels for one environment or one weight, on CPU and GPU alike.

P policies, N environments each, T steps.
"""

import math

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.core.rng import mix, step_key
from cavalcade.ppo.update import BETA1, BETA2, EPSILON


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
