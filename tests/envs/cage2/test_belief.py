"""Blue's belief: particles that explain what Blue saw, in the right proportions."""

import numpy as np
import pytest

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.belief import Belief
from cavalcade.envs.cage2.copying import copy_game
from cavalcade.envs.cage2.scenario import REDS
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.cage2.state import GAME_FIELDS, host_bits


def followed(red, games=24, steps=40, particles=64, revision="head"):
    """Predictions and truth of privileged hosts over some games, and the belief at their end."""
    env = Cage2(games, red=red, seed=7, revision=revision, extras=("scans",))
    env.reset()
    belief, rng = Belief(env, particles, seed=1), np.random.default_rng(0)
    predicted, true = [], []
    for _ in range(steps):
        actions = BLUES["react-restore"](env, rng)
        env.step(actions)
        belief.update(actions, env.packed.observation[:, 0])
        predicted.append(belief.marginals().privileged)
        true.append(host_bits(env.state.privileged))
    return env, belief, np.array(predicted), np.array(true)


@pytest.mark.parametrize("red", ["bline", "meander"])
@pytest.mark.parametrize("revision", ["head", "leaderboard-2022"])
def test_probabilities_are_calibrated(red, revision):
    env, belief, predicted, true = followed(red, revision=revision)
    assert np.array_equal(belief.state.table[belief._source :][: 24 * 64], np.repeat(env.state.table, 64))
    for low, high in ((0.05, 0.5), (0.5, 0.95)):
        here = (predicted >= low) & (predicted < high)
        if here.sum() > 50:
            error = 4 * (0.25 / (here.sum() / 13)) ** 0.5  # hosts of a game and steps in a row are not independent
            assert abs(predicted[here].mean() - true[here].mean()) < error
    assert ((predicted - true) ** 2).mean() < 0.25 * ((true.mean() - true) ** 2).mean()
    assert belief.marginals().agent[:, REDS.index(red)].mean() > 0.9


def test_the_hidden_state_of_the_games_is_not_read():
    env = Cage2(3, red="meander", seed=1)
    env.reset()
    one, other = Belief(env, 16), Belief(env, 16)
    env.step([1, 1, 1])
    one.update([1, 1, 1], env.packed.observation[:, 0])
    table = env.packed.observation[:, 0].copy()
    for name in GAME_FIELDS:
        if name != "key":
            getattr(env.state, name)[:] = 1
    other.update([1, 1, 1], table)
    assert all(np.array_equal(getattr(one.state, name), getattr(other.state, name)) for name in GAME_FIELDS)


def test_what_nothing_explains_is_counted_and_believed():
    env = Cage2(2, red="bline")
    env.reset()
    belief = Belief(env, 8)
    impossible = np.full(2, (1 << 52) - 1)
    belief.update([0, 0], impossible)
    assert belief.lost == 2
    assert (belief.save(np.arange(16))["table"] == impossible[0]).all()


def test_particles_continue_as_games():
    env = Cage2(2, red="bline", horizon=100)
    env.reset()
    belief = Belief(env, 4)
    env.load_state(belief.save(np.array([0, 5])))
    assert (env.step([0, 0]).reward <= 0).all()


def test_every_field_is_copied():
    env = Cage2(2, red="meander", seed=3)
    env.reset()
    for name in GAME_FIELDS:
        field = getattr(env.state, name)
        field[:] = np.arange(1, field.size + 1)
    copy_game.py_func(env.state, 0, 1)
    saved = env.save_state()
    assert all(np.array_equal(saved[name][0], saved[name][1]) for name in GAME_FIELDS)


def test_there_is_at_least_one_particle():
    with pytest.raises(ConfigError, match="particles is 0"):
        Belief(Cage2(1), 0)
