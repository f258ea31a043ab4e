"""Games as plain data equal the games themselves; branches, ranks and traces are what they say."""

import dataclasses
import os
import sys

import numpy as np
import pytest
import yaml

from cavalcade.core.errors import ConfigError
from cavalcade.core.statistics import half_interval
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import ACTIONS, DECOYS, HOSTS, NUM_DECOYS, RED_ACTIONS
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.cage2.trace import load_trace
from cavalcade.runs.policies import load_policy
from cavalcade.targets.cage2.evaluation import task_of
from cavalcade.targets.cage2.scoring import score
from cavalcade.watch.games.branch import _FRESH, before, branch
from cavalcade.watch.games.choice import Choice
from cavalcade.watch.games.defender import check_harmless
from cavalcade.watch.games.library import Library
from cavalcade.watch.games.record import difference, recorded

from .game_runs import folder_of_runs

EVERY_BLUE = ({"run": "two", "member": "1"}, {"run": "two", "member": "0", "sampled": "true"}, {"blue": "random"},
              {"run": "deep/lstm"})  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    return folder_of_runs(tmp_path_factory, data)


@pytest.fixture(scope="module")
def library(folder):
    return Library(folder)


def played_again(game, env):
    """The state of a game after reset and each step, from the actions that were recorded."""
    env.reset()
    yield env
    for step in game["steps"][1:]:
        env.step([ACTIONS.index(step["blue"]["action"])])
        yield env


def hosts_with(step, test):
    return sum(1 << h for h, host in enumerate(step["hosts"]) if test(host))


def test_a_game_is_the_state_of_the_environment(library, folder):
    game = library.play({"run": "two", "member": "1", "seed": "5", "green": "true"})
    task = task_of(load_policy(folder / "two"))
    shown = task.shown | {"green": True}
    env = Cage2(1, red="meander", horizon=12, stream="heldout", seed=5, autoreset=False, **shown)
    assert len(game["steps"]) == 13
    s = env.state
    for step, _ in zip(game["steps"], played_again(game, env), strict=True):
        assert hosts_with(step, lambda host: host.get("held") == "privileged") == s.privileged[0]
        held = hosts_with(step, lambda host: "held" in host)
        assert held == s.privileged[0] | s.user[0] | s.flagged[0]
        assert hosts_with(step, lambda host: "removable" in host) == s.flagged[0]
        assert hosts_with(step, lambda host: "malware" in host) == s.malware[0]
        assert hosts_with(step, lambda host: "scanned" in host) == s.scanned[0]
        for kind, name in enumerate(DECOYS):
            mine = hosts_with(step, lambda host, name=name: name in host.get("decoys", ()))
            assert mine == s.decoys[:NUM_DECOYS][kind]
        codes = {"": 0, "scan": 1, "exploit": 3}, {"": 0, "unknown": 1, "user": 2, "privileged": 3}
        table = sum(
            (codes[0][host.get("sees", "")] | codes[1][host.get("believes", "")] << 2) << 4 * h
            for h, host in enumerate(step["hosts"])
        )
        assert table == s.table[0]
        assert (step["step"], step["total"]) == (s.step[0], s.total[0] / 10)
        assert step["reward"] == pytest.approx(env.buffers.reward[0])
        if step["step"]:
            assert RED_ACTIONS.index(step["red"]["action"]) == s.red_action[0]
            assert step["red"]["success"] == {0: False, 1: True, 2: None}[int(s.red_success[0])]
        assert step.get("green", "") == (HOSTS[s.green_target[0]] if s.green_target[0] >= 0 else "")


@pytest.mark.parametrize("scenario", [{}, {"cost_user": 0.3, "cost_enterprise": 2.0, "cost_impact": 4.0}])
def test_the_parts_of_a_reward_add_up(scenario):
    env = Cage2(1, red="bline", horizon=40, scenario=scenario, autoreset=False)
    env.reset()
    rng = np.random.default_rng(0)
    game = recorded(env, lambda env: BLUES["random"](env, rng))
    assert any(step["service"] == "down" for step in game["steps"])
    assert any(step["parts"]["restore"] for step in game["steps"])
    for step in game["steps"]:
        assert sum(step["parts"].values()) == pytest.approx(step["reward"])
        assert -sum(host.get("cost", 0) for host in step["hosts"]) == pytest.approx(step["parts"]["hosts"])
        served = step["parts"]["impact"]
        assert served == (-scenario.get("cost_impact", 10) if step["service"] == "down" else 0)


@pytest.mark.parametrize(
    ("held", "believed", "expected"),
    [("", "", ""), ("user", "user", ""), ("privileged", "", "missed"), ("", "user", "false alarm"),
     ("privileged", "user", "underrated"), ("user", "privileged", "overrated"), ("", "unknown", "unsure")],
)  # fmt: skip
def test_differences_of_truth_and_belief(held, believed, expected):
    assert difference(held, believed, 1) == expected
    assert difference(held, believed, HOSTS.index("User0")) == ""


def test_decisions_are_those_of_the_policy(library, folder):
    game = library.play({"run": "two", "member": "0", "seed": "3"})
    policy = load_policy(folder / "two")[0]
    task = task_of(policy)
    env = Cage2(1, red="meander", horizon=12, stream="heldout", seed=3, autoreset=False, **task.shown)
    env.reset()
    for step in game["steps"][1:]:
        chances, value = policy.evaluate(env.buffers.observation[0], env.buffers.action_mask[0])
        best = step["policy"]["best"]
        assert step["blue"]["action"] == best[0][0] == ACTIONS[int(chances.argmax())]
        assert [p for _, p in best] == pytest.approx(np.sort(chances)[::-1][:5], abs=1e-4)
        assert step["policy"]["value"] == pytest.approx(value, abs=1e-3)
        env.step([ACTIONS.index(step["blue"]["action"])])


@pytest.mark.parametrize("blue", EVERY_BLUE)
def test_the_same_action_has_the_same_future(library, blue):
    game = library.play(blue | {"seed": "2", "horizon": "12"})
    taken = game["steps"][7]["blue"]["action"]
    again = library.play(blue | {"seed": "2", "horizon": "12", "edits": f"7:{taken}"})
    assert again["steps"] == game["steps"]
    assert again["meta"]["edits"] == [[7, taken]]
    other = "Restore User1" if taken != "Restore User1" else "Restore User2"
    changed = library.play(blue | {"seed": "2", "horizon": "12", "edits": f"7:{other}"})["steps"]
    assert changed[:7] == game["steps"][:7]
    assert changed[7]["blue"]["action"] == other
    found = library.branch(blue | {"seed": "2", "horizon": "12", "at": "7", "action": taken, "continuations": "50"})
    assert found["difference"] == {"mean": 0, "interval": 0}
    assert found["taken"] == found["other"]
    assert found["taken"]["interval"] >= 0
    assert found["steps_left"] == 6


def test_continuations_are_games_from_that_state_on(library, folder):
    choice = Choice(run="two", member=1, seed=4)
    defender = library._defender(choice)
    action, step, n = ACTIONS.index("Restore User2"), 5, 30
    at = before(defender, choice, 0, step)
    task = task_of(defender.policy)
    fresh = Cage2(n, stream="heldout", seed=4, first_index=_FRESH, red="meander", horizon=12, **task.shown)
    expected = {}
    for name, first in (("taken", at.taken), ("other", action)):
        returns = []
        for i in range(n):
            env = at.env.clone()
            env.state.key[0] = fresh.state.key[i]
            start, runner = int(env.state.total[0]), defender.policy.runner(0)
            env.step([first])
            while not env.buffers.truncated[0]:
                env.step(runner(env))
            returns.append((int(env.state.total[0]) - start) / 10)
        expected[name] = np.array(returns)
    found = branch(defender, choice, 0, step, action, n)
    for name, returns in expected.items():
        assert found[name]["mean"] == pytest.approx(returns.mean())
        assert found[name]["interval"] == pytest.approx(half_interval(returns))
    assert found["difference"]["mean"] == pytest.approx((expected["other"] - expected["taken"]).mean())
    assert len(set(expected["taken"])) > 1


def test_ranked_games_are_those_of_the_score(library, folder):
    asked = {"run": "two", "member": "0", "cell": "meander-30", "episodes": "40", "seed": "1"}
    policy = load_policy(folder / "two")
    official = {"revision": "head", "green": False}
    (cell,) = score(policy.runner(0), task_of(policy), ["meander"], [30], 40, seed=1, **official)
    totals = []
    for rank in range(40):
        game = library.play(asked | {"rank": str(rank)})
        totals.append(game["steps"][-1]["total"])
    assert totals == sorted(totals)
    assert np.mean(totals) == pytest.approx(cell.mean)
    named = {rank: library.play(asked | {"rank": rank}) for rank in ("worst", "median", "best")}
    assert [game["steps"][-1]["total"] for game in named.values()] == [totals[0], totals[19], totals[39]]
    about = named["worst"]["meta"]
    assert about["ranking"]["mean"] == pytest.approx(cell.mean)
    assert about["ranking"]["interval"] == pytest.approx(cell.interval)
    other = library.play({"blue": "sleep", "cell": "meander-30", "game": str(about["game"]), "seed": "1"})
    assert other["meta"]["game"] == about["game"]


def test_two_blues_meet_the_same_draws(library):
    same = {"red": "bline", "horizon": "12", "seed": "7"}
    games = [library.play(blue | same) for blue in ({"blue": "sleep"}, {"blue": "react"})]
    first = [next(s["red"]["host"] for s in game["steps"][1:] if "host" in s["red"]) for game in games]
    assert first[0] == first[1]


def test_a_recorded_episode_is_shown_as_it_was(library, folder):
    trace = load_trace(folder / "games.npz")
    for variant, table in (("challenge", "obs"), ("workflow", "obs2")):
        game = library.trace({"trace": "games.npz", "episode": "1", "variant": variant})
        assert "note" not in game["meta"]
        assert game["meta"]["horizon"] == trace.steps
        f = {name: field[1] for name, field in trace.fields.items() if name != "meta" and field.ndim}
        for t, step in enumerate(game["steps"]):
            privileged = [host.get("held") == "privileged" for host in step["hosts"]]
            assert privileged == (f["s_n_priv"][t] > 0).tolist()
            sees = [host.get("sees") == "exploit" for host in step["hosts"]]
            assert sees == f[table][t].reshape(13, 4)[:, :2].all(axis=1).tolist()
            if t:
                assert step["reward"] == pytest.approx(f["reward"][t - 1])
                assert ACTIONS.index(step["blue"]["action"]) == f["blue_action"][t - 1]
    assert library.files({})["traces"] == ["cut.npz", "games.npz", "notes.npz"]


def test_what_a_run_names_is_not_imported(library, folder, tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    config = yaml.safe_load((folder / "two" / "config.yaml").read_text())
    defender = library._defender(Choice(run="two", member=0))
    own = dataclasses.replace(defender, task=dataclasses.replace(defender.task, red="planted:red"))
    with pytest.raises(ConfigError, match="which is not run here; choose another red"):
        own.game(Choice(run="two"))
    assert own.game(Choice(run="two", red="bline")).params.horizon == config["task"]["horizon"]
    for plain in ({"target": "mettagrid", "arena": {"task": "planted:make"}}, {"target": "env:planted:Env"}, {}):
        with pytest.raises(ConfigError, match="shown"):
            check_harmless(plain)
    assert "planted" not in sys.modules


def test_policies_are_loaded_once_and_again_when_they_change(library, folder):
    first = library._defender(Choice(run="two", member=0))
    assert library._defender(Choice(run="two", member=0, red="bline")) is first
    newest = max((folder / "two" / "checkpoints").iterdir())
    os.utime(newest, (1, 1))
    assert library._defender(Choice(run="two", member=0)) is not first
