"""Sorts the samples of a rollout by observation: equal ones become neighbours, a run of them is a row.

The keys that are sorted are hashes; whether two samples share a row is decided by the observations themselves. If two
hashes should collide, a row may be split into several, which changes nothing but the work.
"""

import numpy as np

from cavalcade.core.jit import rule
from cavalcade.ppo.engines.cuda.evaluate import hash_of


@rule
def row_key(i, words, samples, bits, keys):
    """The sort key of sample i: the number of its policy, of so many bits, and a hash of its observation.

    words: (P·T·N, W); samples: T·N.
    """
    policy = np.uint64(i // samples) << np.uint64(63 - bits)
    keys[i] = np.int64(policy | hash_of(words, i) >> np.uint64(bits + 1))


@rule
def begins(i, order, words, samples, found):
    """Marks the i-th sorted sample if it begins a row of the rollout; order: index of each sorted sample."""
    here, before = order[i], order[max(i - 1, 0)]
    new = i % samples == 0
    for w in range(words.shape[1]):
        new = new or words[here, w] != words[before, w]
    found[i] = 1 if new else 0


@rule
def minibatch_of(i, order, place, share, steps, found):
    """The minibatch of the i-th sorted sample; place: (P, N), of the environment in the shuffled order."""
    n = place.shape[1]
    sample = order[i]
    found[i] = place[sample // (steps * n), sample % n] // share


@rule
def begins_again(i, position, row, order, b, sample, found):
    """Takes the i-th sample of all minibatches, and marks it if it begins a row of its minibatch and policy.

    position: its position among the sorted samples; row: of those, in the rollout; b: samples per minibatch and policy.
    """
    here = position[i]
    sample[i] = order[here]
    found[i] = 1 if i % b == 0 or row[here] != row[position[i - 1]] else 0


@rule
def row_number(i, counted, b, row):
    """The row of the i-th sample in its minibatch and policy; counted: rows up to each sample."""
    row[i] = counted[i] - counted[i // b * b]


@rule
def take_row(i, s, first, b, words, found):
    """Copies the observation of a row from its first sample; i: sample of the minibatch; found: (P, rows, W)."""
    at, p = first + i, i // b
    if i % b == 0 or s.row[at] != s.row[at - 1]:
        for w in range(words.shape[1]):
            found[p, s.row[at], w] = words[s.sample[at], w]
