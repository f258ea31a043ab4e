"""Random keys of training: one per environment for its actions, one per policy for its minibatches."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.jit import kernel
from cavalcade.core.rng import POLICY_STREAM, environment_key

_SHUFFLE = np.uint64(2**63)  # not the index of any environment


@kernel
def _derive(seeds, indices, keys):
    for i in range(keys.size):
        keys[i] = environment_key(POLICY_STREAM, seeds[i], indices[i])


def environment_keys(seeds: Sequence[int], num_envs: int, first: int = 0) -> NDArray[np.uint64]:
    """The keys of all environments' actions, (P·N,); first: index of each policy's first environment."""
    keys = np.empty(len(seeds) * num_envs, np.uint64)
    indices = np.arange(first, first + num_envs, dtype=np.uint64)
    _derive(np.repeat(np.array(seeds, np.uint64), num_envs), np.tile(indices, len(seeds)), keys)
    return keys


def policy_keys(seeds: Sequence[int]) -> NDArray[np.uint64]:
    """The keys of all policies' minibatch orders, (P,)."""
    keys = np.empty(len(seeds), np.uint64)
    _derive(np.array(seeds, np.uint64), np.full(len(seeds), _SHUFFLE), keys)
    return keys
