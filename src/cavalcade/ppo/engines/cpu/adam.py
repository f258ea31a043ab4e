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
            norms[p] = math.sqrt(square(gradient, p, 0, gradient.shape[1]))
            steps[p] += 1
            move(weights, gradient, first, second, p, 0, weights.shape[1], steps[p], rate[p], limit[p], norms[p])


@kernel(numerics=True)
def square_part(gradient, p, start, stop):
    """The sum of squares of weights start … stop − 1 of a policy's gradient; for threads of the caller."""
    return square(gradient, p, start, stop)


@kernel(numerics=True)
def move_part(weights, gradient, first, second, p, start, stop, step, rate, limit, norm):
    """The step of weights start … stop − 1 of one policy; for threads of the caller. step: its number, from 1 on."""
    move(weights, gradient, first, second, p, start, stop, step, rate, limit, norm)


@formula
def square(gradient, p, start, stop):
    """The sum of squares of a part of a policy's gradient."""
    total = 0.0
    for k in range(start, stop):
        total += gradient[p, k] * gradient[p, k]
    return total


@formula
def move(weights, gradient, first, second, p, start, stop, step, rate, limit, norm):
    """One Adam step of a part of one policy; norm: that of the whole gradient."""
    real = weights.dtype.type
    shrink = real(min(1.0, limit / (norm + 1e-6)) if limit > 0 else 1.0)
    size, scale = real(rate / (1 - BETA1**step)), real(1 / math.sqrt(1 - BETA2**step))
    b1, b2, eps = real(BETA1), real(BETA2), real(EPSILON)
    for k in range(start, stop):
        g = shrink * gradient[p, k]
        m = b1 * first[p, k] + (real(1) - b1) * g
        v = b2 * second[p, k] + (real(1) - b2) * g * g
        first[p, k] = m
        second[p, k] = v
        weights[p, k] -= size * m / (real(math.sqrt(v)) * scale + eps)
