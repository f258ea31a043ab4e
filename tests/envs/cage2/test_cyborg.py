"""CybORG as a batch: on a stand-in everywhere, on the original where it is."""

import os
from pathlib import Path

import numpy as np
import pytest

from cavalcade.config import HostConfig
from cavalcade.core.errors import ConfigError, StateError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.cyborg_workflow import WorkflowCyborg
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import NUM_BITS, TYPE_OF, USER0

from ...cli.helpers import refused, run
from .fake_cyborg import make_clone

BACKENDS = [("serial", 1), ("pipe", 1), ("shared", 1), ("async", 2)]
ORIGINAL = pytest.mark.skipif(
    "CAVALCADE_CYBORG" not in os.environ,
    reason="needs a clone of cage-challenge-2: CAVALCADE_CYBORG, CAVALCADE_CYBORG_PYTHON",
)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return make_clone(tmp_path_factory.mktemp("clone"))


def host(backend="shared", factor=1):
    return HostConfig(backend=backend, workers=2, async_factor=factor)


def played(env, steps, seed=0):
    rng, found = np.random.default_rng(seed), []
    env.reset()
    for _ in range(steps):
        b = env.step(rng.integers(0, 144, env.spec.num_envs))
        found.append([np.array(x) for x in b])
    env.close()
    return found


def test_games_do_not_depend_on_who_hosts_them(clone):
    games = [
        played(Cyborg(clone, 8, host=host(*how), horizon=7, red="mixed", extras=("decoys", "scans")), 20)
        for how in BACKENDS
    ]
    for other in games[1:]:
        for one, two in zip(games[0], other, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("backend", "factor"), BACKENDS)
def test_tables_rewards_and_ends(clone, backend, factor):
    env = Cyborg(clone, 8, host=host(backend, factor), horizon=7, true_state_every=1, extras=("decoys",))
    env.reset()
    assert not env.buffers.observation.any()
    ours = Cage2(8, red="sleep", horizon=7, extras=("decoys",))
    ours.reset()
    rng = np.random.default_rng(0)
    for t in range(1, 15):
        actions = rng.integers(0, 144, 8)
        b, o = env.step(actions), ours.step(actions)
        theirs = env.hosted.buffers
        np.testing.assert_array_equal(b.reward, theirs.reward)
        assert b.truncated.tolist() == [t % 7 == 0] * 8
        assert not b.terminated.any()
        np.testing.assert_array_equal(b.observation[:, :NUM_BITS], theirs.observation)
        np.testing.assert_array_equal(b.observation[:, NUM_BITS:], o.observation[:, NUM_BITS:])  # our own decoys
        assert env.true_state[0, 8] == 2  # Red never leaves User0
        assert (env.true_state[0] > 0).sum() == (1 if t % 7 < 5 else 2)
        if t % 7 == 0:
            assert not b.observation[:, :NUM_BITS].any()
            np.testing.assert_array_equal(b.final_observation[:, :NUM_BITS], theirs.final_observation)
            np.testing.assert_array_equal(b.final_observation[:, NUM_BITS:], o.final_observation[:, NUM_BITS:])
            assert (env.episode_kinds == 1).all()  # bline
        bits = b.observation[:, :NUM_BITS].astype(np.int64) @ (1 << np.arange(NUM_BITS))
        np.testing.assert_array_equal(env.packed.observation[:, 0], bits)
    env.close()


def test_seeds_streams_and_policies(clone):
    def first(**options):
        env = Cyborg(clone, 4, host=host("serial"), **options)
        env.reset()
        return env.step([1, 1, 1, 1]).observation.copy()

    assert (first() == first()).all()
    assert (first() != first(seed=1)).any()
    assert (first() != first(stream="heldout")).any()
    two = first(seed=[0, 5])
    assert (two[:2] == first()[:2]).all()
    assert (two[2:] == first(seed=5)[:2]).all()


def test_orders_are_followed_on_the_true_state(clone):
    env = WorkflowCyborg(clone, 4, host=host("shared"), horizon=12, measure="true")
    order = CAGE2.parse("user>enterprise>op_server>op_host>defender")
    env.assign(slice(0, 4), order=order, seed=0, alignment="delta", weight=10.0)
    assert env.buffers.observation[:, -25:].sum(axis=1).tolist() == [5, 5, 5, 5]
    restore = {"Op_Server0": 132 + 7, "User1": 132 + 9}
    for t in range(12):  # from step 5 Op_Server0 is open, from step 10 User1 as well, which comes before it
        action = 1 if t < 10 else restore["User1"]
        b = env.step([action, action, action, restore["Op_Server0"] if t >= 10 else 1])
    assert b.truncated.all()
    episode_stats = dict(zip(env.episode_stat_names, env.episode_stats.T, strict=True))
    assert episode_stats["true_counted"].tolist() == [2, 2, 2, 2]
    assert episode_stats["true_compliance"].tolist() == episode_stats["choice"].tolist() == [1, 1, 1, 0]
    assert episode_stats["bonus"].tolist() == [10, 10, 10, 0]
    saved = env.save_state()
    env.load_state(saved)
    assert (env.track.counted == 0).all()
    env.close()


@pytest.mark.parametrize("mask", ["mask", "mask-true"])
@pytest.mark.parametrize("backend", ["serial", "shared"])
def test_orders_are_enforced_in_cyborg(clone, backend, mask):
    """What CybORG itself shows, or what it knows, decides what may be repaired."""
    env = WorkflowCyborg(clone, 6, host=host(backend), horizon=12, show_order=False)
    order = CAGE2.parse("user>enterprise>op_server>op_host>defender")
    env.assign(slice(0, 6), order=order, seed=0, mask=mask)
    rng, forbidden = np.random.default_rng(0), 0
    for t in range(30):
        allowed = env.buffers.action_mask.copy()
        table = env.hosted.buffers.observation.reshape(6, 13, 4)
        hosts = table[:, :, 2:].any(axis=2) if mask == "mask" else env.true_state > 0
        for e in range(6):
            open_ = {int(TYPE_OF[h]) for h in range(13) if hosts[e, h] and h != USER0}
            free = {min(open_, key=order.index)} if len(open_) > 1 else set(range(5))
            expected = [int(TYPE_OF[h]) in free for h in range(13)]
            assert allowed[e, 132:].tolist() == allowed[e, 15:28].tolist() == expected, t
            forbidden += len(open_) > 1
        env.step([rng.choice(np.flatnonzero(row[:144])) for row in allowed])
        if env.buffers.truncated.any():
            compliance = env.episode_stats[
                :, env.episode_stat_names.index("compliance" if mask == "mask" else "true_compliance")
            ]
            assert (compliance[~np.isnan(compliance)] == 1).all()
    assert forbidden > 20
    env.close()


def test_random_orders_differ(clone):
    env = WorkflowCyborg(clone, 6, host=host("serial"), horizon=3)
    env.assign(slice(0, 6), order=None, seed=3)
    first = env.track.rank.copy()
    assert len({tuple(row) for row in first}) > 2
    for _ in range(3):
        env.step([1] * 6)
    assert (env.track.rank != first).any(axis=1).sum() > 2


def test_a_game_that_fails_is_begun_anew(clone, capfd):
    env = Cyborg(clone, 4, host=host("shared"), horizon=9, extras=("action", "decoys"))
    env.reset()
    shown = env.step([1, 1, 1, 1]).observation.copy()
    b = env.step([1, 144, 1, 1])
    assert "does not like action 144" in capfd.readouterr().err
    assert b.truncated.tolist() == [True, True, False, False]
    assert env.episode_kind_names[env.episode_kinds[1]] == "broken"
    assert not b.observation[:2].any()
    np.testing.assert_array_equal(b.final_observation[:2], shown[:2])  # what was shown last, extras and all
    env.close()


def test_train_and_search(clone, capsys, tmp_path):
    small = ("--num-envs", "4", "--rollout-steps", "20", "--horizon", "10", "--hidden", "8", "--threads", "1")
    there = ("cyborg", "--cyborg", clone, "--workers", "2")
    args = ("train", *there, *small, "--episodes", "40", "--checkpoint-every", "2", "--run", tmp_path / "a")
    status, out, _ = run(capsys, *args)
    assert status == 0
    assert "400 steps in" in out
    assert run(capsys, "train", "--resume", tmp_path / "a")[0] == 0
    ordered = ("--episodes", "40", "--order", "user_priority", "--run", tmp_path / "c")
    assert run(capsys, "train", *there, *small, *ordered)[0] == 0
    assert "compliance" in (tmp_path / "c" / "episodes.csv").read_text().splitlines()[0]
    assert run(capsys, "evaluate", tmp_path / "c", "--episodes", "4", "--revisions", "head")[0] == 0
    assert run(capsys, "evaluate", tmp_path / "a", "--episodes", "4", "--revisions", "head")[0] == 0
    assert "policy against bline: 10 steps" in run(capsys, "play", tmp_path / "a")[1]
    args = ("search", *there, *small, "--max-episodes", "2", "--total-episodes", "50", "--n-workflows", "2")
    status, out, _ = run(capsys, *args, "--score-episodes", "4", "--confirm", "0", "--run", tmp_path / "b")
    assert status == 0
    assert "Cannot tell whether the order matters: 0 orders" in out


def test_bad_input(clone, capsys, tmp_path):
    with pytest.raises(ConfigError, match="is not a clone"):
        Cyborg(tmp_path, 2)
    with pytest.raises(ConfigError, match="variant is workflow"):
        Cyborg(clone, 2, variant="workflow")
    with pytest.raises(ConfigError, match="nowhere cannot be started"):
        Cyborg(clone, 2, Path("/nowhere"))
    env = Cyborg(clone, 2, host=host("serial"))
    env.reset()
    with pytest.raises(StateError, match="cannot be cloned"):
        env.clone()
    with pytest.raises(StateError, match="recv without actions"):
        env.recv()
    assert "with target cage2; it needs target cyborg" in refused(capsys, "search", "cage2", "--cyborg", clone)
    assert "target is cyborg without --cyborg" in refused(capsys, "search", "cyborg")
    assert "target is cyborg without --cyborg" in refused(capsys, "train", "cyborg")
    train = ("train", "cyborg", "--cyborg", clone)
    assert "unknown option --infos" in refused(capsys, *train, "--infos", "x")
    assert f"{clone} is head, give --revision head" in refused(capsys, *train, "--revision", "leaderboard-2022")
    assert "only cyborg is hosted" in refused(capsys, "search", "cage2", "--workers", "2")


@ORIGINAL
def test_the_original_is_hosted(capfd):
    checkout, python = Path(os.environ["CAVALCADE_CYBORG"]), Path(os.environ["CAVALCADE_CYBORG_PYTHON"])
    games = []
    for how in (("pipe", 1), ("shared", 1), ("async", 2)):
        env = Cyborg(checkout, 4, python, host(*how), horizon=30, red="mixed", green=True, true_state_every=1)
        games.append(played(env, 35))
    for other in games[1:]:
        for one, two in zip(games[0], other, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)
    assert "restarting" not in capfd.readouterr().err
    env = Cyborg(checkout, 2, python, host(), horizon=40, true_state_every=1)
    env.reset()
    held = [0]
    for _ in range(39):
        env.step([0, 0])
        held.append(int((env.true_state[0] > 0).sum()))
    assert held[1] == 1  # User0
    assert held[-1] >= 4  # a sleeping Blue loses host after host
    env.close()
