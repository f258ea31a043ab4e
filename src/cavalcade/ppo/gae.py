"""Generalised advantage estimation over a rollout, and normalisation, on CPU threads."""

import math

import numba
import numpy as np

from cavalcade.core.jit import kernel, rule


@kernel(parallel=True)
def gae(reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns):
    """Advantages and value targets; see `advantage.gae` for the formula.

    reward, value, advantage, returns, bootstrap: (P, T, N); ended: (P, T, N) bool; last_value: (P, N);
    scale, gamma, decay: (P,), decay = γλ.
    """
    policies, _, n = reward.shape
    for task in numba.prange(policies * n):
        gae_environment(
            reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns, task // n, task % n
        )


@rule
def gae_environment(reward, value, ended, bootstrap, last_value, scale, gamma, decay, advantage, returns, p, e):
    """Advantages of one environment, backwards in time."""
    steps = reward.shape[1]
    after, following = reward.dtype.type(0), last_value[p, e]
    for back in range(steps):
        t = steps - 1 - back
        if ended[p, t, e]:
            after, following = reward.dtype.type(0), bootstrap[p, t, e]
        delta = scale[p] * reward[p, t, e] + gamma[p] * following - value[p, t, e]
        after = delta + decay[p] * after
        advantage[p, t, e] = after
        returns[p, t, e] = after + value[p, t, e]
        following = value[p, t, e]


@kernel(parallel=True)
def normalise(advantage):
    """Normalises advantages to zero mean, unit standard deviation per policy; (P, B), in place."""
    for p in numba.prange(advantage.shape[0]):
        normalise_policy(advantage, p, advantage.shape[1])


@rule
def normalise_policy(advantage, p, n):
    mean = 0.0
    for i in range(n):
        mean += advantage[p, i]
    mean /= n
    square = 0.0
    for i in range(n):
        square += (advantage[p, i] - mean) ** 2
    spread = math.sqrt(square / max(n - 1, 1)) + 1e-8
    for i in range(n):
        advantage[p, i] = (advantage[p, i] - mean) / spread


@kernel(parallel=True)
def discounted_moments(reward, ended, gamma, running, count, mean, square):
    """Running mean and sum of squared deviations of discounted reward sums, for the scale of returns (Welford).

    reward: (P, T, N); ended: (P, T, N) bool; running: (P, N), the sums so far; count, mean, square: (P,) float64.
    """
    for p in numba.prange(reward.shape[0]):
        discounted_policy(reward, ended, gamma[p], running, count, mean, square, p)


@rule
def discounted_policy(reward, ended, gamma, running, count, mean, square, p):
    for t in range(reward.shape[1]):
        for e in range(reward.shape[2]):
            total = gamma * running[p, e] + reward[p, t, e]
            count[p] += 1
            delta = total - mean[p]
            mean[p] += delta / count[p]
            square[p] += delta * (total - mean[p])
            running[p, e] = np.float64(0) if ended[p, t, e] else total
