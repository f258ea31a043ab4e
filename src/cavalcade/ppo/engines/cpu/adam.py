"""Adam on rows of weights: clipping, moments and steps per policy. The compiled form of `update.adam_step`."""

import math

import numba

from cavalcade.core.jit import formula, kernel
from cavalcade.ppo.update import BETA1, BETA2, EPSILON


@kernel(parallel=True, numerics=True)
def adam_step(weights, gradient, first, second, steps, rate, limit, active, norms):
    """One step of Adam for every active policy, after clipping its gradient's norm.

    weights, gradient, first, second: (P, D); steps: (P,) int64, steps taken; rate, limit: (P,), limit 0 = no clipping;
    norms: (P,), the gradients' norms before clipping.
    """
    for p in numba.prange(weights.shape[0]):
        if active[p]:
            norms[p] = norm(gradient, p)
            steps[p] += 1
            move(weights, gradient, first, second, p, steps[p], rate[p], limit[p], norms[p])


@formula
def norm(gradient, p):
    """The norm of a policy's gradient."""
    total = 0.0
    for k in range(gradient.shape[1]):
        total += gradient[p, k] * gradient[p, k]
    return math.sqrt(total)


@formula
def move(weights, gradient, first, second, p, step, rate, limit, length):
    """One Adam step of one policy; length: the gradient's norm."""
    real = weights.dtype.type
    shrink = real(min(1.0, limit / (length + 1e-6)) if limit > 0 else 1.0)
    size, scale = real(rate / (1 - BETA1**step)), real(1 / math.sqrt(1 - BETA2**step))
    b1, b2, eps = real(BETA1), real(BETA2), real(EPSILON)
    for k in range(weights.shape[1]):
        g = shrink * gradient[p, k]
        m = b1 * first[p, k] + (real(1) - b1) * g
        v = b2 * second[p, k] + (real(1) - b2) * g * g
        first[p, k] = m
        second[p, k] = v
        weights[p, k] -= size * m / (real(math.sqrt(v)) * scale + eps)
