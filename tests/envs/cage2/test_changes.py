"""Changes to the scenario: the challenge without any, else what they say, and marked."""

import gymnasium
import numpy as np
import pytest

import cavalcade
from cavalcade.core.errors import ConfigError
from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.changes import Scenario, not_the_challenge
from cavalcade.envs.cage2.scenario import (
    DEFENDER,
    ENT1,
    EXPLOIT,
    FIRST_RESTORE_ACTION,
    HOSTS,
    OP_HOST2,
    OP_SERVER,
    RED_SLEEP,
    SSH_BRUTE_FORCE,
    TRUE,
    USER0,
    USER3,
)
from cavalcade.targets.cage2.config import Cage2Config


def cost(host=None, *, down=False, action=0, **changes):
    """What a step costs with one host held, or with the service down."""
    env = Cage2(1, red="sleep", scenario=changes)
    env.reset()
    if host is not None:
        env.state.privileged[:] |= 1 << host
    env.state.ot_running[:] = not down
    env.step([action])
    return -round(float(env.buffers.reward[0]), 3)


def test_without_changes_the_costs_are_those_of_the_challenge():
    assert Cage2(1, scenario=Scenario()).params == Cage2(1, scenario={}).params == Cage2(1).params
    usual = [cost(host) for host in range(len(HOSTS))]
    assert usual == [0.1, 1, 1, 1, 0.1, 0.1, 0.1, 1, 0, 0.1, 0.1, 0.1, 0.1]
    weighted = [cost(host, cost_impact=3, cost_op_host=0.2) for host in range(len(HOSTS))]
    assert weighted == [0.2 if 4 <= host <= 6 else usual[host] for host in range(len(HOSTS))]


def test_costs():
    costs = {"cost_user": 0.3, "cost_enterprise": 2, "cost_op_host": 0.5, "cost_op_server": 4.1}
    hosts = (USER0, USER3, ENT1, OP_HOST2, OP_SERVER, DEFENDER)
    assert [cost(host, **costs) for host in hosts] == [0, 0.3, 2, 0.5, 4.1, 0.1]
    assert (cost(down=True), cost(down=True, cost_impact=2.5)) == (10, 2.5)
    restore = FIRST_RESTORE_ACTION + ENT1
    assert (cost(action=restore), cost(action=restore, cost_restore=0)) == (1, 0)


def test_red_waits():
    env, usual = Cage2(50, red="meander", scenario={"red_delay": 7}), Cage2(50, red="meander")
    env.reset(), usual.reset()
    for t in range(7):
        env.step(np.zeros(50, int))
        assert (env.state.red_action == RED_SLEEP).all(), t
    for _ in range(30):
        env.step(np.zeros(50, int)), usual.step(np.zeros(50, int))
    assert (env.state.red_action != RED_SLEEP).all()
    assert 0.5 < env.state.total.mean() / usual.state.total.mean() < 2  # it then plays as ever


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_detection(chance):
    env = Cage2(400, red="bline", scenario={"detection": chance}, horizon=30)
    env.reset()
    shells = seen = 0
    for _ in range(30):
        env.step(np.zeros(400, int))
        s = env.state
        opened = (s.red_action == EXPLOIT) & (s.red_success == TRUE) & (s.red_exploit != SSH_BRUTE_FORCE)
        activity = s.table >> 4 * np.maximum(s.red_target, 0).astype(np.int64) & 0b11
        shells, seen = shells + opened.sum(), seen + (opened & (activity == 0b11)).sum()
    assert shells > 400
    assert abs(seen / shells - chance) < (0.06 if 0 < chance < 1 else 1e-9)


def test_words():
    assert Scenario().differences == ()
    assert not_the_challenge(Scenario()) == []
    assert not_the_challenge(Scenario(detection=0.5, red_delay=3)) == [
        "not the challenge: detection 0.5 instead of 0.95, red_delay 3 instead of 0"
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"detection": 1.5}, "detection is 1.5; it must be from 0 to 1"),
        ({"red_delay": -1}, "red_delay is -1"),
        ({"cost_user": 0.25}, "cost_user is 0.25; it must be a multiple of 0.1"),
        ({"cost_impact": 5000}, r"cost_impact is 5000\.0; it must be from 0 to 1000"),
        ({"cost_wolf": 1}, "scenario.cost_wolf is not a setting; there are detection, red_delay"),
    ],
)
def test_changes_that_cannot_be(changes, message):
    with pytest.raises(ConfigError, match=message):
        Cage2(1, scenario=changes)


def test_a_red_of_ones_own_waits_by_itself():
    with pytest.raises(ConfigError, match="red_delay is 3 with red <lambda>; let it wait by itself"):
        Cage2(1, red=lambda s, e, key: (0, 0), scenario={"red_delay": 3})
    with pytest.raises(ConfigError, match="red_delay is 3 with red mine:red"):
        Cage2Config(scenario=Scenario(red_delay=3), task=Cage2Config().task.__class__(red="mine:red"))


def test_through_gymnasium():
    env = gymnasium.make(CAGE2_ID, red="sleep", scenario={"cost_restore": 5}).unwrapped
    env.reset(seed=0)
    assert env.step(FIRST_RESTORE_ACTION)[1] == -5


def test_runs_and_scores_are_marked(tmp_path, capsys):
    options = {
        "num_envs": 10, "rollout_steps": 30, "horizon": 20, "hidden": (8,), "episodes": 30, "threads": 1,
        "detection": 0.5, "cost_user": 0.2,
    }  # fmt: skip
    said = "not the challenge: detection 0.5 instead of 0.95, cost_user 0.2 instead of 0.1"
    run = cavalcade.train("cage2", run=tmp_path / "run", **options)
    assert said in capsys.readouterr().out
    assert run.config.scenario == Scenario(detection=0.5, cost_user=0.2)
    scores = run.heldout()
    assert said in str(scores)
    assert scores.plain["not_the_challenge"] == run.config.scenario.differences
    official = run.evaluate(episodes=2, revisions=("head",))
    assert "trained on games that are not the challenge (detection 0.5 instead of 0.95, cost_user" in str(official)
    assert official.plain["policy"] in str(official)
    assert set(run.episodes()["kind"]) == {"bline (changed scenario)"}
    assert "-changed-" in cavalcade.api.default_path(run.config).name


def test_official_scores_are_of_the_challenge(tmp_path):
    settings = {"num_envs": 10, "rollout_steps": 30, "hidden": (8,), "episodes": 3, "threads": 1, "progress": False}
    usual, changed = (
        cavalcade.train("cage2", run=tmp_path / str(i), learning_rate=1e-9, **settings, **more)
        for i, more in enumerate(({}, {"cost_impact": 500, "cost_user": 50}))
    )
    options = {"episodes": 3, "revisions": ("head",)}
    assert usual.evaluate(**options)["head total"] == changed.evaluate(**options)["head total"]
