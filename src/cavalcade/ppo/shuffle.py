"""Random permutations of samples, the same on every machine for the same seed."""

import numba
import numpy as np

from cavalcade.core.jit import kernel, rule
from cavalcade.core.rng import index_below, step_key, word


@kernel(parallel=True)
def shuffle(keys, updates, epoch, order):
    """A random permutation of all samples for each policy: keys, updates (P,), order (P, B) int64, overwritten."""
    for p in numba.prange(order.shape[0]):
        shuffle_policy(keys[p], updates[p], epoch, order, p)


@rule
def shuffle_policy(key, update, epoch, order, p):
    """The permutation of one policy (Fisher and Yates)."""
    here = step_key(key, update, epoch)
    n = order.shape[1]
    for i in range(n):
        order[p, i] = i
    for i in range(n - 1, 0, -1):
        j = index_below(word(here, i), i + 1)
        held = order[p, i]
        order[p, i] = order[p, j]
        order[p, j] = np.int64(held)
