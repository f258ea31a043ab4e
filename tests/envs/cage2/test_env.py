"""The batch environment keeps its contract: buffers, ends, seeds, saved games, refusals."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cavalcade.core.errors import ActionError, ConfigError, StateError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.state import GAME_FIELDS, bytes_per_environment, host_bits

OPTIONS = {"red": "mixed", "green": True, "extras": ("scans", "decoys", "action"), "horizon": 17, "seed": 3}


def actions(num_envs, steps, seed=0):
    return np.random.default_rng(seed).integers(145, size=(steps, num_envs))


def played(env, moves):
    """Everything a batch writes over some steps, and its state at the end."""
    env.reset()
    rows = [np.copy(part) for part in env.buffers]
    for move in moves:
        rows += [np.copy(part) for part in env.step(move)]
        rows += [env.words.copy(), env.reward_parts.copy(), env.final_total.copy()]
    return rows + list(env.save_state().values())


def assert_same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_is_small():
    assert bytes_per_environment() <= 160
    assert sum(field.nbytes for field in Cage2(100).state) == 100 * bytes_per_environment()


def test_threads_do_not_change_anything():
    moves = actions(1200, 40)
    assert_same(*(played(Cage2(1200, threads=threads, **OPTIONS), moves) for threads in (1, 2)))


def test_the_cut_of_the_batch_does_not_change_anything():
    moves = actions(60, 40)
    whole = played(Cage2(60, **OPTIONS), moves)
    parts = [
        played(Cage2(stop - start, first_index=start, **OPTIONS), moves[:, start:stop])
        for start, stop in ((0, 7), (7, 8), (8, 60))
    ]
    assert_same(whole, [np.concatenate(rows) for rows in zip(*parts, strict=True)])


def test_a_population_is_its_members():
    moves = actions(30, 20)
    options = OPTIONS | {"seed": [11, 12, 13]}
    together = played(Cage2(30, **options), moves)
    members = [
        played(Cage2(10, **OPTIONS | {"seed": seed}), moves[:, 10 * i : 10 * i + 10])
        for i, seed in enumerate(options["seed"])
    ]
    assert_same(together, [np.concatenate(rows) for rows in zip(*members, strict=True)])


def test_plain_python_plays_the_same_games(tmp_path):
    script = (
        "import sys, numpy as np; from cavalcade.envs.cage2 import Cage2\n"
        "from tests_env import OPTIONS, actions, played\n"
        "for i, more in enumerate(({}, {'revision': 'leaderboard-2022', 'variant': 'workflow'},\n"
        "                          {'extras': ('time',), 'dtype': 'float32'})):\n"
        "    np.savez(f'{sys.argv[1]}/{i}.npz', *played(Cage2(5, **OPTIONS | more), actions(5, 40)))\n"
    )
    (tmp_path / "tests_env.py").write_bytes(Path(__file__).read_bytes())
    found = []
    for disabled in ("0", "1"):
        folder = tmp_path / disabled
        folder.mkdir()
        environment = os.environ | {
            "NUMBA_DISABLE_JIT": disabled,
            "PYTHONPATH": str(tmp_path),
            "PYTHONWARNINGS": "error",
        }
        subprocess.run([sys.executable, "-Werror", "-c", script, str(folder)], check=True, env=environment)
        for i in range(3):
            with np.load(folder / f"{i}.npz") as archive:
                found.append([archive[name] for name in archive.files])
    for i in range(3):
        assert_same(found[i], found[3 + i])


def test_same_seed_same_games_other_seed_other_games():
    moves = actions(50, 30)
    first, again = (played(Cage2(50, **OPTIONS), moves) for _ in range(2))
    assert_same(first, again)
    other = played(Cage2(50, **OPTIONS | {"seed": 4}), moves)
    heldout = played(Cage2(50, stream="heldout", **OPTIONS), moves)
    for different in (other, heldout):
        assert any((a != b).any() for a, b in zip(first, different, strict=True))


def test_reset_goes_on_and_a_seed_starts_over():
    env = Cage2(200, red="meander", seed=5)
    env.reset()
    moves = actions(200, 6)
    first = [env.step(move).observation.copy() for move in moves]
    env.reset()
    assert (env.state.episode == 1).all()
    second = [env.step(move).observation.copy() for move in moves]
    assert any((a != b).any() for a, b in zip(first, second, strict=True))
    env.reset(seed=5)
    assert (env.state.episode == 0).all()
    assert_same(first, [env.step(move).observation.copy() for move in moves])


def test_reset_of_some_environments():
    env = Cage2(5, horizon=50)
    env.reset()
    for move in actions(5, 10):
        env.step(move)
    before = env.save_state()
    env.reset(indices=[1, 3])
    assert env.state.step.tolist() == [10, 0, 10, 0, 10]
    assert env.state.episode.tolist() == [0, 1, 0, 1, 0]
    assert not env.buffers.observation[[1, 3]].any()
    after = env.save_state()
    for name in GAME_FIELDS:
        np.testing.assert_array_equal(before[name][[0, 2, 4]], after[name][[0, 2, 4]])
    env.reset(indices=np.array([True, False, False, False, False]))
    assert env.state.step.tolist() == [0, 0, 10, 0, 10]


def test_the_horizon_truncates_and_the_next_episode_shows_at_once():
    env, endless = Cage2(300, red="meander", horizon=20), Cage2(300, red="meander", horizon=0)
    env.reset()
    endless.reset()
    total = np.zeros(300)
    for t, move in enumerate(actions(300, 60), start=1):
        here = env.step(move)
        assert not here.terminated.any()
        assert here.truncated.all() == (t % 20 == 0)
        assert here.truncated.any() == (t % 20 == 0)
        total += np.rint(10 * here.reward)
        if t <= 20:
            there = endless.step(move)
            np.testing.assert_array_equal(here.reward, there.reward)
            if t == 20:
                np.testing.assert_array_equal(here.final_observation, there.observation)
                assert there.observation.any()
        if t % 20 == 0:
            assert not here.observation.any()
            np.testing.assert_array_equal(env.final_total, total)
            total[:] = 0
            assert (env.state.step == 0).all()
            assert (env.state.episode == t // 20).all()
            plain, decoys_on_fresh_hosts = 41, 41
            assert (here.action_mask.sum(axis=1) == plain + decoys_on_fresh_hosts).all()


def test_without_autoreset_the_game_goes_on_past_the_horizon():
    env = Cage2(3, horizon=5, autoreset=False)
    env.reset()
    ends = [env.step([0, 0, 0]).truncated.all() for _ in range(7)]
    assert ends == [False] * 4 + [True] * 3
    assert env.state.step.tolist() == [7, 7, 7]


def test_red_per_environment():
    env = Cage2(4, red=["sleep", "bline", "meander", "sleep"])
    env.reset()
    for _ in range(40):
        env.step([0, 0, 0, 0])
    assert env.state.total[[0, 3]].tolist() == [0, 0]
    assert (env.state.total[[1, 2]] < 0).all()


def test_saved_games_go_on_as_they_would_have():
    env = Cage2(40, **OPTIONS)
    env.reset()
    moves = actions(40, 30)
    for move in moves[:10]:
        env.step(move)
    saved, copy, some = env.save_state(), env.clone(), env.clone([4, 7])
    observation = env.buffers.observation.copy()
    mask = env.buffers.action_mask.copy()
    expected = [np.copy(part) for move in moves[10:] for part in env.step(move)[:4]]
    assert_same(expected, [np.copy(part) for move in moves[10:] for part in copy.step(move)[:4]])
    for move in moves[10:]:
        some.step(move[[4, 7]])
    assert_same(list(env.save_state([4, 7]).values()), list(some.save_state().values()))
    env.load_state(saved)
    np.testing.assert_array_equal(env.buffers.observation, observation)
    np.testing.assert_array_equal(env.buffers.action_mask, mask)
    assert_same(expected, [np.copy(part) for move in moves[10:] for part in env.step(move)[:4]])


def test_a_game_can_be_branched():
    env = Cage2(6, red="meander")
    env.reset()
    for move in actions(6, 25):
        env.step(move)
    env.load_state(env.save_state([2] * 6))
    assert len(np.unique(env.words)) == 1
    env.step(np.arange(132, 138))
    assert len(np.unique(env.state.total)) > 0
    assert len(np.unique(env.words[:, 0])) > 1 or len(np.unique(env.state.privileged)) > 1


def test_host_bits():
    assert host_bits(np.array([0b101])).nonzero()[1].tolist() == [0, 2]
    assert host_bits(np.zeros((4, 5), np.int16)).shape == (4, 5, 13)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0; it must be a whole number of at least 1"),
        ({"num_envs": -3}, "num_envs is -3"),
        ({"num_envs": 2.5}, "num_envs is 2.5"),
        ({"num_envs": True}, "num_envs is True"),
        ({"red": "wolf"}, "red is 'wolf'; it must be one of bline, meander, sleep, mixed"),
        ({"red": ["bline"]}, "red names 1 agents for 4 environments"),
        ({"red": ["bline", "bline", "fox", "bline"]}, "red is 'fox'"),
        ({"revision": "main"}, "revision is 'main'; it must be one of head, leaderboard-2022"),
        ({"variant": "table"}, "variant is 'table'; it must be one of challenge, workflow"),
        ({"horizon": -1}, "horizon is -1"),
        ({"extras": ("clock",)}, "extras is 'clock'; it must be one of scans, decoys, action, time, elapsed"),
        ({"extras": "time"}, "extras has time, with dtype uint8"),
        ({"extras": "time", "dtype": "float32", "horizon": 0}, "it needs float32 and an end"),
        ({"dtype": "int64"}, "dtype is 'int64'; it must be one of uint8, float32"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": [1, 2, 3]}, "3 seeds do not divide 4 environments"),
        ({"seed": []}, "seed is"),
        ({"stream": "test"}, "stream is 'test'; it must be one of train, evaluate, heldout"),
        ({"first_index": -1}, "first_index is -1"),
        ({"threads": -1}, "threads is -1"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ConfigError, match=message):
        Cage2(**{"num_envs": 4} | options)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([0, 0], r"shape \(2,\); with 3 environments it must be \(3,\)"),
        ([[0, 0, 0]], r"shape \(1, 3\)"),
        (5, r"shape \(\)"),
        ([0.0, 1.0, 2.0], "of type float64; they must be whole numbers"),
        ([True, False, True], "of type bool"),
        (["a", "b", "c"], "of type <U1"),
        ([0, 145, 0], "action 145 of environment 1 is out of range; it must be from 0 to 144"),
        ([0, 0, -1], "action -1 of environment 2"),
        (np.array([0, 0, 2**32 + 1]), "action 4294967297 of environment 2"),
        (np.array([0, 0, 2**63], np.uint64), "environment 2"),
        ([[0], [1, 2], 3], "not an array of 3 whole numbers"),
    ],
)
def test_bad_actions_change_nothing(wrong, message):
    env = Cage2(3, red="meander")
    env.reset()
    env.step([1, 2, 3])
    before, shown = env.save_state(), env.buffers.observation.copy()
    with pytest.raises(ActionError, match=message):
        env.step(wrong)
    for name, value in env.save_state().items():
        np.testing.assert_array_equal(value, before[name])
    np.testing.assert_array_equal(env.buffers.observation, shown)
    with pytest.raises(StateError, match="recv without actions"):
        env.recv()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_actions_of_any_integer_type(dtype):
    env = Cage2(3)
    env.reset()
    env.step(np.array([0, 1, 100], dtype))
    assert env.state.blue_action.tolist() == [0, 1, 100]


def test_use_before_reset_and_impossible_resets():
    env = Cage2(3)
    with pytest.raises(StateError, match="call reset"):
        env.step([0, 0, 0])
    with pytest.raises(StateError, match="first reset"):
        env.reset(indices=[1])
    with pytest.raises(StateError, match="before the first reset"):
        env.load_state(Cage2(1).save_state(), [0])
    env.reset()
    for wrong in ([3], [-1], [0.5], [[0]]):
        with pytest.raises(ConfigError, match="whole numbers from 0 to 2"):
            env.reset(indices=wrong)
    with pytest.raises(ConfigError, match="leave one out"):
        env.reset(seed=1, indices=[0])


def test_saved_states_that_do_not_fit():
    env = Cage2(3, red="meander")
    env.reset()
    for move in actions(3, 5):
        env.step(move)
    saved = env.save_state()
    wrong = [
        ({name: value for name, value in saved.items() if name != "table"}, "lacks table"),
        (
            saved | {"table": saved["table"][:2]},
            r"is int64 \(2,\); here it must be int64 \(3,\)",
        ),
        (saved | {"malware": saved["malware"].astype(np.int64)}, "malware of the saved state is int64"),
        (saved | {"line_state": np.full(3, 99, np.int8)}, "line_state of the saved state goes from 99 to 99; allowed"),
        (saved | {"privileged": np.full(3, -1, np.int16)}, "privileged of the saved state goes from -1"),
    ]
    for state, message in wrong:
        with pytest.raises(StateError, match=message):
            env.load_state(state)
    with pytest.raises(StateError, match="here it must be"):
        env.load_state(saved, [0, 1])
    for name, value in env.save_state().items():
        np.testing.assert_array_equal(value, saved[name])


def test_the_objective_of_the_protocol_adds_up_to_its_three_horizons():
    plain, weighted = (Cage2(64, red="mixed", seed=2, objective=name) for name in ("return", "protocol"))
    rng, sums = np.random.default_rng(0), {"prefixes": np.zeros(64), "weighted": np.zeros(64)}
    for env in (plain, weighted):
        env.reset()
    for t in range(1, 101):
        actions = rng.integers(145, size=64)
        sums["prefixes"] += plain.step(actions).reward * sum(t <= horizon for horizon in (30, 50, 100))
        sums["weighted"] += weighted.step(actions).reward
    np.testing.assert_allclose(sums["weighted"], sums["prefixes"], rtol=1e-5)
    assert (sums["weighted"] < plain.final_total / 10).all()
    np.testing.assert_array_equal(weighted.final_total, plain.final_total)
