"""Adam on rows of weights: clipping, moments and steps per policy. The compiled form of `update.adam_step`."""

import math

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel
from cavalcade.ppo.update import BETA1, BETA2, EPSILON

_PART = 1 << 18  # weights that one thread takes at once; norms are summed in this order


@kernel(parallel=True, numerics=True)
def adam_step(weights, gradient, first, second, steps, rate, limit, active, norms):
    """One step of Adam for every active policy, after clipping its gradient's norm.

    weights, gradient, first, second: (P, D); steps: (P,) int64, steps taken; rate, limit: (P,), limit 0 = no clipping;
    norms: (P,), the gradients' norms before clipping.
    """
    policies, size = weights.shape
    parts = (size + _PART - 1) // _PART
    squares = np.zeros((policies, parts))
    for task in numba.prange(policies * parts):
        p, part = task // parts, task % parts
        if active[p]:
            squares[p, part] = square(gradient, p, part * _PART, min(size, (part + 1) * _PART))
    for p in range(policies):
        if active[p]:
            norms[p] = math.sqrt(squares[p].sum())
            steps[p] += 1
    for task in numba.prange(policies * parts):
        p, part = task // parts, task % parts
        if active[p]:
            start, stop = part * _PART, min(size, (part + 1) * _PART)
            move(weights, gradient, first, second, p, start, stop, steps[p], rate[p], limit[p], norms[p])


@formula
def square(gradient, p, start, stop):
    """The sum of squares of a part of a policy's gradient."""
    total = 0.0
    for k in range(start, stop):
        total += gradient[p, k] * gradient[p, k]
    return total


@formula
def move(weights, gradient, first, second, p, start, stop, step, rate, limit, length):
    """One Adam step of a part of a policy; length: the gradient's norm."""
    real = weights.dtype.type
    shrink = real(min(1.0, limit / (length + 1e-6)) if limit > 0 else 1.0)
    size, scale = real(rate / (1 - BETA1**step)), real(1 / math.sqrt(1 - BETA2**step))
    b1, b2, eps = real(BETA1), real(BETA2), real(EPSILON)
    for k in range(start, stop):
        g = shrink * gradient[p, k]
        m = b1 * first[p, k] + (real(1) - b1) * g
        v = b2 * second[p, k] + (real(1) - b2) * g * g
        first[p, k] = m
        second[p, k] = v
        weights[p, k] -= size * m / (real(math.sqrt(v)) * scale + eps)
