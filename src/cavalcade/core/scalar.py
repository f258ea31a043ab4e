"""exp and tanh that the compiler can vectorise: 30 times faster than the library's, within 3e-7 of them.

In float64, which serves to check the mathematics, they are the library's own.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from cavalcade.core.jit import formula

_INLINE: Any = {"forceinline": True, "error_model": "numpy", "fastmath": {"contract"}}


def tanh(x):
    """Hyperbolic tangent."""
    return math.tanh(x)


def exp(x):
    """Exponential of a number ≤ 80."""
    return math.exp(x)


@intrinsic
def two_to_the(_typing, n):
    """A power of two in float32, built from its exponent bits."""
    signature = types.float32(types.int32)

    def codegen(_context, builder, _signature, arguments):
        bits = builder.add(arguments[0], ir.Constant(ir.IntType(32), 127))
        return builder.bitcast(builder.shl(bits, ir.Constant(ir.IntType(32), 23)), ir.FloatType())

    return signature, codegen


@overload(tanh, jit_options=_INLINE)
def _tanh(x):
    if x != types.float32:
        return lambda x: math.tanh(x)
    f = np.float32
    limit = f(7.90531110763549805)  # beyond it tanh is 1 in float32
    # Rational minimax approximation: odd numerator, even denominator.
    p0, p1, p2, p3 = f(4.89352455891786e-03), f(6.37261928875436e-04), f(1.48572235717979e-05), f(5.12229709037114e-08)
    p4, p5, p6 = f(-8.60467152213735e-11), f(2.00018790482477e-13), f(-2.76076847742355e-16)
    q0, q1, q2, q3 = f(4.89352518554385e-03), f(2.26843463243900e-03), f(1.18534705686654e-04), f(1.19825839466702e-06)

    def impl(x):
        x = min(max(x, -limit), limit)
        y = x * x
        numerator = x * (p0 + y * (p1 + y * (p2 + y * (p3 + y * (p4 + y * (p5 + y * p6))))))
        return numerator / (q0 + y * (q1 + y * (q2 + y * q3)))

    return impl


@overload(exp, jit_options=_INLINE)
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)
    f = np.float32
    least, log2e, half = f(-87.0), f(1.44269504088896341), f(0.5)
    ln2_high, ln2_low = f(0.693359375), f(-2.12194440e-4)
    c0, c1, c2, c3 = f(5.0000001201e-1), f(1.6666665459e-1), f(4.1665795894e-2), f(8.3334519073e-3)
    c4, c5, one = f(1.3981999507e-3), f(1.9875691500e-4), f(1.0)

    def impl(x):
        x = max(x, least)
        n = np.floor(x * log2e + half)
        r = x - n * ln2_high - n * ln2_low
        y = one + r + r * r * (c0 + r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * c5)))))
        return y * two_to_the(np.int32(n))  # pyright: ignore[reportCallIssue]

    return impl


@formula
def exponentials(logits, actions, padded, into):
    """exp(logits − top) of a row, zero beyond the actions; returns top, the largest logit or 0. `padded` is 4·n."""
    a, b, c, d = logits[0], logits[1], logits[2], logits[3]
    for k in range(4, padded, 4):
        a, b = max(a, logits[k]), max(b, logits[k + 1])
        c, d = max(c, logits[k + 2]), max(d, logits[k + 3])
    top = max(max(a, b), max(c, d))
    for k in range(padded):
        into[k] = exp(logits[k] - top)
    for k in range(actions, padded):
        into[k] = 0
    return top
