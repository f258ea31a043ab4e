"""Orders of samples."""

import numpy as np

from cavalcade.ppo.keys import environment_keys, policy_keys
from cavalcade.ppo.shuffle import shuffle


def orders(seeds, update, epoch, n=1000):
    order = np.zeros((len(seeds), n), np.int64)
    shuffle(policy_keys(seeds), np.full(len(seeds), update), epoch, order)
    return order


def test_each_is_a_permutation_of_its_own():
    found = orders([1, 2], 0, 0)
    assert (np.sort(found, axis=1) == np.arange(1000)).all()
    for other in (orders([2, 1], 0, 0), orders([1, 2], 1, 0), orders([1, 2], 0, 1)):
        assert (found == other).mean() < 0.01
    assert (found[1] == orders([2], 0, 0)[0]).all()


def test_every_sample_comes_first_equally_often():
    firsts = np.bincount([orders([s], 0, 0, 10)[0, 0] for s in range(2000)], minlength=10)
    assert ((firsts - 200) ** 2 / 200).sum() < 35  # 9 degrees of freedom: p < 1e-4


def test_keys_are_all_different():
    keys = np.concatenate([environment_keys([0, 1, 2], 100), policy_keys([0, 1, 2])])
    assert len(set(keys.tolist())) == 303
