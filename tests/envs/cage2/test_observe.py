"""Extras of the observation say what they promise, and the packed form holds the same."""

import numpy as np
import pytest

from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2 import scenario as sc
from cavalcade.envs.cage2.observe import ELAPSED_STEPS
from cavalcade.envs.cage2.state import host_bits

ALL = ("scans", "decoys", "action", "time", "elapsed")
SIZES = {"scans": 26, "decoys": 104, "action": 26, "time": 1, "elapsed": len(ELAPSED_STEPS)}


def features(env):
    """The observation cut into its parts."""
    values, column, parts = env.buffers.observation, 52, {}
    for name in ALL:
        parts[name] = values[:, column : column + SIZES[name]]
        column += SIZES[name]
    assert column == values.shape[1]
    return parts


def test_extras_over_random_games():
    n = 200
    env = Cage2(n, red="mixed", green=True, extras=ALL, dtype="float32", horizon=50, seed=1)
    env.reset()
    rng = np.random.default_rng(0)
    ever = np.zeros((n, 13), np.bool_)
    latest = np.zeros((n, 13), np.bool_)
    for t in range(1, 101):
        action = rng.integers(145, size=n)
        env.step(action)
        parts = features(env)
        if t % 50 == 0:
            ever[:] = latest[:] = False
            assert not any(parts[name].any() for name in ALL if name != "time")
            assert (parts["time"] == 1).all()
            continue
        table = env.buffers.observation[:, :52].reshape(n, 13, 4)
        scan = (table[:, :, 0] == 1) & (table[:, :, 1] == 0)
        some = scan.any(axis=1)
        ever |= scan
        latest[some] = scan[some]
        np.testing.assert_array_equal(parts["scans"], np.concatenate([ever, latest], axis=1))
        np.testing.assert_array_equal(parts["decoys"], host_bits(env.state.decoys.reshape(n, 8)).reshape(n, 104))
        kinds, hosts = parts["action"][:, :13], parts["action"][:, 13:]
        assert (kinds.argmax(axis=1) == np.where(action < 2, action, 2 + (action - 2) // 13)).all()
        assert (kinds.sum(axis=1) == 1).all()
        assert (hosts.sum(axis=1) == (action >= 2)).all()
        assert (hosts.argmax(axis=1)[action >= 2] == (action[action >= 2] - 2) % 13).all()
        np.testing.assert_allclose(parts["time"][:, 0], 1 - t % 50 / 50, rtol=1e-6)
        assert (parts["elapsed"] == (t % 50 >= ELAPSED_STEPS)).all()


def test_extras_follow_in_fixed_order_whatever_the_order_asked():
    one, other = Cage2(5, extras=("action", "scans")), Cage2(5, extras=("scans", "action"))
    for env in (one, other):
        env.reset()
        env.step([140, 1, 2, 3, 4])
    assert one.buffers.observation.shape == (5, 52 + 26 + 26)
    np.testing.assert_array_equal(one.buffers.observation, other.buffers.observation)
    assert one.buffers.observation[0, 52 + 26 :].nonzero()[0].tolist() == [12, 13 + sc.USER0]


@pytest.mark.parametrize("extras", [(), ("scans",), ("decoys",), ("action",), ("scans", "decoys", "action")])
def test_equal_words_are_equal_observations(extras):
    env = Cage2(3000, red="mixed", extras=extras)
    env.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        env.step(rng.integers(145, size=3000))
    distinct_words = np.unique(env.words, axis=0)
    distinct_values = np.unique(env.buffers.observation, axis=0)
    assert len(distinct_words) == len(distinct_values)
    both = np.unique(np.concatenate([env.words, env.buffers.observation.astype(np.int64)], axis=1), axis=0)
    assert len(both) == len(distinct_words)


def test_variants_differ_only_where_a_fresh_decoy_hides_a_scan():
    pair = [Cage2(2000, red="bline", variant=variant, seed=9) for variant in sc.VARIANTS]
    rng = np.random.default_rng(0)
    for env in pair:
        env.reset()
    hidden = 0
    for _ in range(60):
        action = rng.integers(28, 132, size=2000)
        one, other = (env.step(action).observation.reshape(2000, 13, 4).astype(int) for env in pair)
        differs = (one != other).any(axis=2)
        rows, hosts = differs.nonzero()
        hidden += len(rows)
        assert (hosts == (action[rows] - 2) % 13).all()
        assert (one[rows, hosts, :2] == 0).all()
        assert (other[rows, hosts, :2] == [1, 0]).all()
        np.testing.assert_array_equal(one[..., 2:], other[..., 2:])
    assert hidden > 50
