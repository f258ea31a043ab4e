"""Samples actions: softmax, draw and log-probability of a row in one pass."""

import math

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel
from cavalcade.ppo.draws import draw_target


@kernel(parallel=True)
def draw_actions(logits, mask, keys, clock, start, actions, log_probs):
    """Samples from the softmax over allowed actions: logits, mask (n, A); actions, log_probs (n,) are written.

    Row i is environment start + i; a masked action has probability 0.
    """
    for i in numba.prange(logits.shape[0]):
        draw_row(i, logits, mask, keys, clock, start, actions, log_probs)


@formula
def draw_row(i, logits, mask, keys, clock, start, actions, log_probs):
    """Samples the action of one row."""
    most = -math.inf
    for a in range(logits.shape[1]):
        if mask[i, a]:
            most = max(most, logits[i, a])
    total = 0.0
    for a in range(logits.shape[1]):
        if mask[i, a]:
            total += math.exp(np.float64(logits[i, a]) - most)
    target = draw_target(keys, start + i, clock, 0) * total
    chosen, reached = -1, 0.0
    for a in range(logits.shape[1]):
        if mask[i, a] and (chosen < 0 or reached <= target):
            chosen = a
            reached += math.exp(np.float64(logits[i, a]) - most)
    actions[i] = chosen
    log_probs[i] = logits[i, chosen] - most - math.log(total)


@kernel
def draw_clocked(count, logits, mask, keys, clock, actions, log_probs):
    """As `draw_actions`, with the clock in an array, (1,)."""
    for i in range(count):
        draw_row(i, logits, mask, keys, clock[0], 0, actions, log_probs)
