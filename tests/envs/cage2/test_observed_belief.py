"""The belief as an observation extra: the same over threads, cuts, clones and saved games, and right about Red."""

import numpy as np
import pytest

from cavalcade.core.errors import ConfigError, StateError
from cavalcade.envs.cage2 import Cage2, cpu
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.observe import EXTRA_VALUES, EXTRAS, LEVELS
from cavalcade.envs.cage2.observed_belief import PARTICLES
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.cage2.state import GAME_FIELDS, host_bits
from cavalcade.envs.cage2.workflow import WorkflowCage2

BELIEF_VALUES = EXTRA_VALUES[EXTRAS.index("belief")]
OPTIONS = {"red": "mixed", "extras": ("scans", "belief"), "horizon": 7, "seed": 3}
FIRST = 52 + 26


def moves(num_envs, steps):
    return np.random.default_rng(0).integers(145, size=(steps, num_envs))


def played(env, actions, begin=True):
    """All observations of some steps, and the state at their end."""
    if begin:
        env.reset()
    rows = []
    for move in actions:
        env.step(move)
        rows += [env.buffers.observation.copy(), env.words.copy()]
        rows += [env.buffers.final_observation.copy()] * bool(env.buffers.truncated[0])
    return rows + list(env.save_state().values())


def same(one, other):
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_threads_and_cuts_do_not_change_it():
    actions = moves(24, 16)
    whole = played(Cage2(24, threads=2, **OPTIONS), actions)
    assert same(whole, played(Cage2(24, threads=1, **OPTIONS), actions))
    parts = [
        played(Cage2(stop - start, first_index=start, **OPTIONS), actions[:, start:stop])
        for start, stop in ((0, 5), (5, 24))
    ]
    assert same(whole, [np.concatenate(rows) for rows in zip(*parts, strict=True)])


@pytest.mark.parametrize("steps", [4, 7, 9])  # within an episode, at its end, in the next one
def test_clones_and_saved_games_continue_exactly(steps):
    actions = moves(6, 20)
    env = Cage2(6, **OPTIONS)
    played(env, actions[:steps])
    saved, clone, some = env.save_state(), env.clone(), env.clone([4, 1])
    expected = played(env, actions[steps:], begin=False)
    assert same(played(clone, actions[steps:], begin=False), expected)
    assert same(played(some, actions[steps:][:, [4, 1]], begin=False), [rows[[4, 1]] for rows in expected])
    other = Cage2(6, **OPTIONS | {"seed": 9})
    other.load_state(saved)
    assert same(played(other, actions[steps:], begin=False), expected)


def levels(observation):
    """Levels of user, privileged (N, 13) and agents (N, 3)."""
    bits = observation[:, FIRST:].reshape(len(observation), -1, LEVELS)
    assert (np.diff(bits.astype(int), axis=2) <= 0).all()  # thermometers
    found = bits.sum(axis=2)
    return found[:, :13], found[:, 13:26], found[:, 26:]


def test_it_says_what_the_hidden_state_is():
    env = Cage2(120, red="meander", seed=7, extras=("scans", "belief"), horizon=40)
    assert env.reset().observation.shape == (120, FIRST + BELIEF_VALUES)
    user, privileged, agent = levels(env.buffers.observation)
    assert not user.any()
    assert (privileged[:, 8] == LEVELS).all()  # User0, and nothing else
    assert (np.delete(privileged, 8, axis=1) == 0).all()
    assert 0.5 < agent.mean() < 2.5  # a third each
    rng, seen = np.random.default_rng(0), []
    for _ in range(39):
        env.step(BLUES["react-restore"](env, rng))
        user, privileged, agent = levels(env.buffers.observation)
        truth = host_bits(env.state.privileged), host_bits((env.state.user | env.state.flagged) & ~env.state.privileged)
        seen.append([np.delete(x, 8, axis=1) for x in (privileged, truth[0], user, truth[1])])
    for said, true in (np.concatenate([[row[i], row[i + 1]] for row in seen], axis=1) for i in (0, 2)):
        rate = [true[said == level].mean() for level in range(LEVELS + 1) if (said == level).sum() > 50]
        assert rate == sorted(rate)
        assert rate[0] < 0.06
        assert rate[-1] > 0.6
    assert (agent[:, 2] == LEVELS).mean() > 0.9


def test_the_last_observation_has_it_and_the_next_game_begins_anew():
    env = Cage2(40, red="bline", seed=2, extras=("scans", "belief"), horizon=12)
    env.reset()
    first = env.buffers.observation.copy()
    rng = np.random.default_rng(0)
    for _ in range(12):
        env.step(BLUES["react"](env, rng))
    assert env.buffers.truncated.all()
    assert levels(env.buffers.final_observation)[2][:, 1].mean() > 2  # B_line by now
    assert np.array_equal(env.buffers.observation[:, :-12], first[:, :-12])  # agents are drawn anew


def test_the_hidden_state_is_not_read():
    env = Cage2(8, **OPTIONS)
    env.reset()
    for move in moves(8, 5):
        env.send(move)
        other = env.clone()
        other.send(move)
        env.recv()
        cpu.step(other.state, other.params, other._actions, other._outputs, 1)
        for name in GAME_FIELDS:
            if name not in ("key", "episode", "step"):
                getattr(other.state, name)[:] = 1
        other._follow()
        assert np.array_equal(other.words, env.words)


def test_it_goes_with_orders():
    env = WorkflowCage2(4, **OPTIONS)
    actions = moves(4, 9)
    plain = Cage2(4, **OPTIONS)
    env.reset(), plain.reset()
    for move in actions:
        env.step(move), plain.step(move)
        assert np.array_equal(env.buffers.observation[:, : FIRST + BELIEF_VALUES], plain.buffers.observation)


def test_what_does_not_fit_is_refused(tmp_path):
    env, plain = Cage2(2, **OPTIONS), Cage2(2, red="mixed")
    env.reset(), plain.reset()
    with pytest.raises(StateError, match=f"has no belief_key \\(2, {PARTICLES}\\)"):
        env.load_state(plain.save_state())
    with pytest.raises(ConfigError, match="beliefs are over the agents of the challenge"):
        Cage2(2, red=lambda s, e, key: (0, 0), extras=("belief",))
    with pytest.raises(ConfigError, match="in our simulator only"):
        Cyborg(tmp_path, 2, extras=("belief",))
