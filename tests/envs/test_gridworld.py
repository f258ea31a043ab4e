"""The gridworld with checkpoints, by hand."""

import numpy as np
import pytest

from cavalcade.core.errors import ActionError, ConfigError, StateError
from cavalcade.envs.gridworld import GRIDWORLD, Gridworld

UP, DOWN, LEFT, RIGHT = range(4)
HIDDEN = "north_east>south_west>north_west>south_east"
WAY = {
    "north_east": [UP, UP, RIGHT, RIGHT],
    "south_west": [LEFT] * 2 + [DOWN] * 4 + [LEFT] * 2,
    "north_west": [UP] * 4,
    "south_east": [RIGHT] * 2 + [DOWN] * 4 + [RIGHT] * 2,
}


def test_the_hidden_order_pays():
    env = Gridworld(2, hidden=HIDDEN)
    env.reset()
    env.assign(slice(0, 2), order=GRIDWORLD.parse(HIDDEN), seed=0)
    total, steps = 0.0, 0
    for place in HIDDEN.split(">"):
        for move in WAY[place]:
            buffers = env.step([move, UP])
            total += float(buffers.reward[0])
            steps += 1
    assert steps == 24
    assert total == pytest.approx(1 + 2 + 3 + 4 - 0.05 * 24, abs=1e-5)
    assert buffers.terminated.tolist() == [True, False]
    assert not buffers.truncated.any()
    episode_stats = dict(zip(env.episode_stat_names, env.episode_stats[0], strict=True))
    assert episode_stats["compliance"] == 1.0
    assert episode_stats["counted"] == 3  # with one checkpoint left there is nothing to choose
    assert episode_stats["chance"] == pytest.approx((1 / 4 + 1 / 3 + 1 / 2) / 3)


def test_out_of_turn_pays_nothing_and_time_runs_out():
    env = Gridworld(1, hidden=HIDDEN, horizon=10)
    env.reset()
    total = 0.0
    for move in [UP, UP, LEFT, LEFT, *[LEFT] * 6]:  # north_west first
        buffers = env.step([move])
        total += float(buffers.reward[0])
    assert total == pytest.approx(-0.5, abs=1e-5)
    assert buffers.truncated.all()
    assert not buffers.terminated.any()
    assert buffers.final_observation[0, 10:14].tolist() == [1, 0, 0, 0]
    assert buffers.observation[0, 10:14].tolist() == [0, 0, 0, 0]


def test_games_go_on_after_saving():
    rng = np.random.default_rng(0)
    moves = rng.integers(4, size=(80, 50))
    env = Gridworld(50)
    env.reset()
    env.assign(slice(0, 50), order=None, seed=1, alignment="alpha-beta", weight=1.0)
    for t in range(30):
        env.step(moves[t])
    other = env.clone()
    for t in range(30, 80):
        a, b = env.step(moves[t]), other.step(moves[t])
        np.testing.assert_array_equal(a.observation, b.observation)
        np.testing.assert_array_equal(a.reward, b.reward)


def test_bad_input():
    with pytest.raises(ConfigError, match="'middle' in order"):
        Gridworld(1, hidden="middle")
    env = Gridworld(1)
    with pytest.raises(StateError, match="before the first reset"):
        env.step([0])
    env.reset()
    with pytest.raises(ActionError, match="out of range"):
        env.step([4])
    with pytest.raises(StateError, match="missing"):
        env.load_state({})
