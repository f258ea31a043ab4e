"""Random numbers for actions, which are hashes of environment, time and part of the action; and draws by them."""

import math

import numpy as np

from cavalcade.core.jit import formula, kernel
from cavalcade.core.rng import step_key, unit, word


@formula
def draw_target(keys, e, clock, part):
    """A uniform number in [0, 1) for a part of an action, or −1 (greedy) if the clock is negative."""
    return -1.0 if clock < 0 else unit(word(step_key(keys[e], 0, clock), part))


@kernel
def uniform_draws(keys, clock, start, draws):
    """Uniform numbers of environments from start on, (n, draws); clock: (P,)."""
    n = keys.size // clock.size
    for i in range(draws.shape[0]):
        e = start + i
        for part in range(draws.shape[1]):
            draws[i, part] = draw_target(keys, e, clock[e // n], part)


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
def draw_rows(logits, mask, keys, clock, start, actions, log_probs):
    """Samples from the softmax over allowed actions, (n, A): writes actions and log-probabilities, (n,).

    Row i is environment start + i; a masked action has probability 0.
    """
    for i in range(logits.shape[0]):
        draw_row(i, logits, mask, keys, clock, start, actions, log_probs)
