"""Samples actions: softmax, draw and log-probability of a row in one pass."""

from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import formula, kernel
from cavalcade.policy.tokens import END
from cavalcade.ppo.draws import draw_row


class Seen(NamedTuple):
    """What n agents see in a step, and their values."""

    observation: np.ndarray  # (n, O)
    mask: np.ndarray  # (n, A)
    begins: np.ndarray  # (n,)
    value: np.ndarray  # (n,)


class Stored(NamedTuple):
    """Where it is stored: segments (S, h, …); observations are cut."""

    observation: np.ndarray
    mask: np.ndarray
    begins: np.ndarray
    value: np.ndarray


@kernel(parallel=True)
def store_and_draw(cut, logits, seen, keys, clock, start, stored, first, at, actions, log_probs):
    """Stores what agents see as step `at` of the segments from `first` on, and samples their actions.

    Samples from the softmax over allowed actions: logits (n, A); actions, log_probs (n,) are written. Row i is
    environment start + i; a masked action has probability 0.

    cut: (parts,), one for each thread: counts observations that have more tokens than are stored.
    """
    for part in numba.prange(len(cut)):
        _store_and_draw(part, cut, logits, seen, keys, clock, start, stored, first, at, actions, log_probs)


@formula
def _store_and_draw(part, cut, logits, seen, keys, clock, start, stored, first, at, actions, log_probs):
    n, size, parts = logits.shape[0], stored.observation.shape[2], len(cut)
    for i in range(n * part // parts, n * (part + 1) // parts):
        for j in range(size):
            stored.observation[first + i, at, j] = seen.observation[i, j]
        if size < seen.observation.shape[1] and seen.observation[i, size] != END:
            cut[part] += 1
        for j in range(seen.mask.shape[1]):
            stored.mask[first + i, at, j] = seen.mask[i, j]
        stored.begins[first + i, at] = seen.begins[i] and at > 0  # the state of a segment's start is already reset
        stored.value[first + i, at] = seen.value[i]
        draw_row(i, logits, seen.mask, keys, clock, start, actions, log_probs)


@kernel
def draw_clocked(count, logits, mask, keys, clock, actions, log_probs):
    """Samples the actions of `count` rows from environment 0 on; the clock is an array, (1,)."""
    for i in range(count):
        draw_row(i, logits, mask, keys, clock[0], 0, actions, log_probs)
