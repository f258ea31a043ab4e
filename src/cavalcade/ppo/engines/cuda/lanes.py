"""Lanes that share a row of logits: the 32 threads of a warp on a GPU, one on the CPU and in Numba's CUDA simulator.

Lane ℓ of L has the actions ℓ, L + ℓ, 2L + ℓ and so on, so that neighbouring lanes read neighbouring numbers. Every sum
over lanes has a fixed order.
"""

from typing import Any, NamedTuple

from cavalcade.core.jit import rule


class Lanes(NamedTuple):
    """Number of lanes, and functions that all of them call together."""

    count: int
    total: Any  # the sum over lanes
    largest: Any
    running: Any  # (x, lane): the sum over this lane and those before it
    take: Any  # (x, lane): the value that one lane has
    votes: Any  # an integer with a bit per lane: whether its condition holds


@rule
def _own(x):
    return x


@rule
def _first(x, lane):
    return x


@rule
def _bit(x):
    return 1 if x else 0


ONE = Lanes(1, _own, _own, _first, _first, _bit)
