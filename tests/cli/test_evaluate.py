"""`cavalcade evaluate`: the official protocol."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import cavalcade
from cavalcade.api import search_config
from cavalcade.config.io import as_dict
from cavalcade.envs.cage2.cyborg import commit_of
from cavalcade.envs.cage2.protocol import HORIZONS, REDS, nine_cells
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.report.training import _with_interval
from cavalcade.runs.export import check_onnx
from cavalcade.runs.policies import load_policy
from cavalcade.targets.base import Score
from cavalcade.targets.cage2.evaluation import Options, evaluate
from cavalcade.targets.cage2.scoring import best_policy, cyborg_cell

from ..envs.cage2.fake_cyborg import make_clone
from .helpers import refused, run

SMALL = ("train", "cage2", "--num-envs", "20", "--hidden", "16", "--episodes", "200", "--threads", "1", "--quiet")


def test_nine_cells_on_two_revisions(capsys, tmp_path):
    file = tmp_path / "figures.json"
    status, out, _ = run(capsys, "evaluate", "sleep", "--episodes", "100", "--json", file)
    assert status == 0
    assert out.index("revision leaderboard-2022") < out.index("revision head")
    assert "CardiffUni, PPO and greedy decoys" in out
    figures = json.loads(file.read_text())
    for cells in figures["revisions"].values():
        assert [(c["horizon"], c["red"]) for c in cells] == [
            (h, r) for h in (30, 50, 100) for r in ("bline", "meander", "sleep")
        ]
        assert all(c["episodes"] == 100 for c in cells)
    total = figures["totals"]["leaderboard-2022"]
    assert total["total"] == pytest.approx(sum(c["mean"] for c in figures["revisions"]["leaderboard-2022"]))
    assert abs(total["total"] - -3112.20) < 5 * total["interval"]  # the leaderboard's figure for a sleeping Blue


def test_options_may_come_before_the_run(capsys, tmp_path):
    """Which options there are depends on the run's target."""
    settings = {"steps": 128, "rollout_steps": 8, "minibatches": 1, "num_envs": 8, "backend": "serial"}
    cavalcade.train("gym:CartPole-v1", **settings, threads=1, progress=False, run=tmp_path / "a")
    assert "2 episodes: " in run(capsys, "evaluate", "--episodes", "2", tmp_path / "a")[1]
    for args, others in (
        (("evaluate", "--cells", "bline-30", tmp_path / "a"), "cage2, cyborg"),
        (("evaluate", tmp_path / "a", "--cyborg", "x"), "cage2, cyborg"),
        (("play", tmp_path / "a", "--blue", "react"), "cage2"),
        (("train", "--resume", tmp_path / "a", "--red", "bline"), "cage2, cyborg"),
    ):
        assert f"gym:CartPole-v1 does not have it, but {others}\n" in refused(capsys, *args)
    said = refused(capsys, "train", "--resume", tmp_path / "a", "--recipe", "x")
    assert "unknown option --recipe; train has it for new runs, not with --resume" in said


def test_a_search_in_a_gridworld_is_told_what_can_be_scored(capsys, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_dict(search_config("gridworld", {}))))
    for verb in ("evaluate", "play"):
        said = refused(capsys, verb, tmp_path)
        assert "is a search on gridworld; only policies of CAGE-2 can be used elsewhere" in said


def test_no_two_cells_share_a_game():
    keys = []

    def actor(env):
        if env.state.step[0] == 0:
            keys.extend(env.state.key.tolist())
        return np.zeros(env.spec.num_envs, np.int32)

    reds, horizons = (*REDS, "mixed"), (1, 29, *HORIZONS)
    cells = list(nine_cells(actor, revision="head", episodes=40, seed=1, reds=reds, horizons=horizons))
    assert len(cells) == 20
    assert len(keys) == len(set(keys)) == 20 * 40


@pytest.mark.parametrize(("name", "official"), [("random", -2015.61), ("react-restore", -823.89)])
def test_baselines_score_as_on_the_leaderboard(capsys, tmp_path, name, official):
    file = tmp_path / "figures.json"
    args = ("--episodes", "500", "--revisions", "leaderboard-2022", "--json", file)
    assert run(capsys, "evaluate", name, *args)[0] == 0
    total = json.loads(file.read_text())["totals"]["leaderboard-2022"]
    assert abs(total["total"] - official) < 4 * total["interval"] / 1.96 + 0.02 * abs(official)


def test_greedy_sees_the_host_that_is_held_only_in_its_corrected_form(capsys, tmp_path):
    found = {}
    for name in ("greedy", "greedy-corrected"):
        run(capsys, "evaluate", name, "--episodes", "200", "--revisions", "head", "--json", tmp_path / "f.json")
        found[name] = json.loads((tmp_path / "f.json").read_text())["totals"]["head"]["total"]
    assert found["greedy-corrected"] > found["greedy"] + 100


def test_the_greedy_of_the_scripts_does_as_they_measured(capsys, tmp_path):
    """100 steps in the original: critical_first −153.5 and −156.7, user_priority −1218.5 and −1017.5."""
    measured = {"critical_first": (-153.5, -156.7), "user_priority": (-1218.5, -1017.5)}
    for order, expected in measured.items():
        args = ("--order", order, "--episodes", "200", "--revisions", "head", "--json", tmp_path / "f.json")
        _, out, _ = run(capsys, "evaluate", "greedy", *args)
        assert f"greedy in the order {order}" in out
        cells = json.loads((tmp_path / "f.json").read_text())["revisions"]["head"]
        found = {c["red"]: c["mean"] for c in cells if c["horizon"] == 100}
        assert (found["bline"], found["meander"]) == pytest.approx(expected, rel=0.03)


def test_a_run_and_its_checkpoints_and_members(capsys, tmp_path):
    run(capsys, *SMALL, "--run", tmp_path / "a", "--policies", "3", "--checkpoint-every", "5")
    status, out, _ = run(capsys, "evaluate", tmp_path / "a", "--episodes", "50")
    assert status == 0
    assert re.search(r"at update 10, greedy, policy \d of 3, the best in validation, 50 episodes per cell", out)
    _, out, _ = run(capsys, "evaluate", tmp_path / "a" / "checkpoints" / "00000005", "--episodes", "50", "--sampled")
    assert "at update 5, sampled" in out
    _, one, _ = run(capsys, "evaluate", tmp_path / "a", "--episodes", "50", "--member", "1")
    assert "policy 1 of 3, 50 episodes" in one
    assert run(capsys, "evaluate", tmp_path / "a", "--episodes", "50", "--member", "1")[1] == one
    assert run(capsys, "evaluate", tmp_path / "a", "--episodes", "50", "--member", "1", "--seed", "9")[1] != one
    status, _, err = run(capsys, "evaluate", tmp_path / "a", "--member", "3")
    assert status == 2
    assert "member is 3" in err


def test_one_rule_chooses_the_member(capsys, tmp_path):
    """What evaluate scores is what export writes, what training announces and what the report names."""
    _, trained, _ = run(capsys, *SMALL[:-1], "--run", tmp_path / "a", "--policies", "3")
    _, scored, _ = run(capsys, "evaluate", tmp_path / "a", "--episodes", "20", "--revisions", "head")
    _, written, _ = run(capsys, "export", tmp_path / "a", "--onnx", tmp_path / "p.onnx")
    which = re.search(r"policy (\d) of 3, the best in validation", scored)
    assert which
    member = int(which[1])
    means = best_policy(load_policy(tmp_path / "a"))[1]
    assert member == means.argmax()
    assert f"use {which[0]}; --member selects another" in trained
    assert f"{which[0]}, largest difference from torch" in written
    assert check_onnx(load_policy(tmp_path / "a"), member, tmp_path / "p.onnx") < 1e-4
    kept = json.loads((tmp_path / "a" / "heldout.json").read_text())
    assert (kept["update"], kept["member"]) == (10, which[0])
    assert [score["name"] for score in kept["scores"]] == [*(f"bline seed {i}" for i in range(3)), "bline"]
    assert all(score["interval"] > 0 for score in kept["scores"])
    run(capsys, "report", tmp_path / "a")
    assert f"use {which[0]}" in (tmp_path / "a" / "report.html").read_text()
    found = cavalcade.load_policy(tmp_path / "a", member="best")
    assert len(found) == 1
    assert (found.weights[0] == cavalcade.load_policy(tmp_path / "a").weights[member]).all()
    assert (
        "policy 0 of 3, largest"
        in run(capsys, "export", tmp_path / "a", "--onnx", tmp_path / "q.onnx", "--member", "0")[1]
    )
    assert "member is 7" in refused(capsys, "export", tmp_path / "a", "--onnx", tmp_path / "q.onnx", "--member", "7")


def test_a_report_of_one_member(capsys, tmp_path):
    run(capsys, *SMALL[:-1], "--run", tmp_path / "a", "--policies", "2")
    assert run(capsys, "report", tmp_path / "a", "--member", "1")[0] == 0
    page = (tmp_path / "a" / "report.html").read_text()
    assert "a, policy 1" in page
    assert "use policy" not in page
    kept = json.loads((tmp_path / "a" / "heldout.json").read_text())["scores"]
    (expected,) = [Score(**score) for score in kept if score["name"] == "bline seed 1"]
    assert _with_interval(expected) in page
    assert "bline seed" not in page
    status, _, err = run(capsys, "report", tmp_path / "a", "--member", "2")
    assert (status, "member is 2; a has 2, numbered from 0" in err) == (2, True)


def test_some_cells_only(capsys, tmp_path):
    args = ("evaluate", "react", "--episodes", "20", "--revisions", "head", "--json", tmp_path / "f.json")
    assert "simulator cavalcade" in run(capsys, *args)[1].splitlines()[0]
    every = {(c["horizon"], c["red"]): c for c in json.loads((tmp_path / "f.json").read_text())["revisions"]["head"]}
    status, out, _ = run(capsys, *args, "--cells", "meander-100,bline-30")
    assert status == 0
    assert "total of 2 cells" in out
    assert "CardiffUni" not in out
    cells = json.loads((tmp_path / "f.json").read_text())["revisions"]["head"]
    assert cells == [every[30, "bline"], every[100, "meander"]]
    err = refused(capsys, *args, "--cells", "bline-31")
    assert "cells is 'bline-31'; it must be one of bline-30, meander-30," in err


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A stand-in for a clone of CAGE Challenge 2 at head, under git."""
    folder = make_clone(tmp_path_factory.mktemp("clone"))
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "all")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def test_scores_in_cyborg_say_where_they_come_from(capsys, tmp_path, clone):
    commit = commit_of(clone)
    assert re.fullmatch(r"[0-9a-f]{7}", commit)
    args = ("evaluate", "sleep", "--cyborg", clone, "--episodes", "2", "--cells", "bline-30,sleep-30", "--workers", "1")
    status, out, _ = run(capsys, *args, "--json", tmp_path / "f.json")
    assert status == 0
    assert out.startswith(f"sleep, 2 episodes per cell, mean ± 95 %, simulator cyborg at commit {commit}\n")
    assert "revision head" in out
    figures = json.loads((tmp_path / "f.json").read_text())
    assert figures["simulator"] == "cyborg"
    assert figures["clone"] == {"path": str(clone), "commit": commit, "revision": "head"}
    assert [c["red"] for c in figures["revisions"]["head"]] == ["bline", "sleep"]
    assert run(capsys, *args, "--simulator", "cyborg")[1] == out
    assert "simulator is cavalcade with --cyborg" in refused(capsys, *args, "--simulator", "cavalcade")
    file = clone / "CybORG" / "CybORG" / "Agents" / "__init__.py"
    before = file.read_text()
    file.write_text(before + "# changed\n")
    assert commit_of(clone) == f"{commit}+"
    file.write_text(before)
    assert commit_of(tmp_path) == commit_of(clone / "CybORG") == ""  # no clones themselves


def test_the_clone_must_be_of_the_revision_that_was_trained_on(capsys, tmp_path, clone):
    run(capsys, *SMALL, "--run", tmp_path / "a", "--revision", "leaderboard-2022")
    args = ("evaluate", tmp_path / "a", "--cyborg", clone, "--episodes", "2", "--cells", "sleep-30", "--workers", "1")
    err = refused(capsys, *args)
    assert "is of revision head (commit " in err
    assert "leaderboard-2022 is what the policy was trained on" in err
    assert "give --revisions head" in err
    assert run(capsys, *args, "--revisions", "head")[0] == 0
    asked = refused(capsys, "evaluate", "sleep", "--cyborg", clone, "--revisions", "leaderboard-2022")
    assert "leaderboard-2022 was asked for" in asked


def test_no_two_cells_share_a_game_in_cyborg(clone):
    games = []

    def actor(env):
        shared = env.hosted.shared
        games.extend(zip(shared.seed.tolist(), shared.index.tolist(), shared.episodes.tolist(), strict=True))
        return np.zeros(env.spec.num_envs, np.int32)

    options = {"workers": 1, "seed": 1}
    for horizon in (1, 2, 3):
        for red in REDS:
            found = cyborg_cell(actor, Cage2Task(), red, horizon, 12, clone, None, **options)
            assert found.episodes == 12
    played = {(seed, index, episode) for seed, index, episode in games}
    assert len({index for _, index, _ in played}) == 9 * 10  # ten games at a time, and each cell its own
    assert len({seed for seed, _, _ in played}) == 1


def test_scoring_in_cyborg_reports_progress(clone):
    told = []
    options = Options(episodes=4, cyborg=clone, cells=("bline-30", "meander-30"), workers=1)
    evaluate("sleep", options, told.append)
    assert told[0] == "playing in CybORG: cell 1 of 2, bline 30, 0 of 4 episodes"
    assert told[-1] == "playing in CybORG: cell 2 of 2, meander 30, 4 of 4 episodes"


def test_missing_requirements_of_cyborg_are_one_line(capsys, tmp_path):
    folder = make_clone(tmp_path)
    init = folder / "CybORG" / "CybORG" / "__init__.py"
    init.write_text("import paramiko_of_old\n" + init.read_text())
    for args in (("evaluate", "sleep", "--episodes", "2"), ("train", "cyborg", "--quiet", "--run", tmp_path / "run")):
        err = refused(capsys, *args, "--cyborg", folder)
        assert f"No module named 'paramiko_of_old' in {sys.executable}; give an interpreter" in err
        assert "--cyborg-python" in err
    err = refused(capsys, "evaluate", "sleep", "--cyborg", folder, "--cyborg-python", "/nowhere/python")
    assert "/nowhere/python cannot be started" in err
    for option in ("--cyborg-python", "--workers"):
        err = refused(capsys, "evaluate", "sleep", option, "9")
        assert f"{option[2:].replace('-', '_')} is 9" in err
        assert "without --cyborg" in err


@pytest.mark.skipif(
    "CAVALCADE_CYBORG" not in os.environ,
    reason="needs a clone of cage-challenge-2: CAVALCADE_CYBORG, CAVALCADE_CYBORG_PYTHON",
)
def test_scores_carry_over_to_cyborg(capsys, tmp_path):
    """Set CAVALCADE_CYBORG to a clone and CAVALCADE_CYBORG_PYTHON to an interpreter with its dependencies."""
    clone, python = Path(os.environ["CAVALCADE_CYBORG"]), os.environ["CAVALCADE_CYBORG_PYTHON"]
    run(capsys, *SMALL, "--run", tmp_path / "a")
    engine = ("--simulator", "cyborg", "--cyborg", clone, "--cyborg-python", python)
    figures = {}
    for name, options in (
        ("ours", ("--revisions", "head", "--episodes", "2000")),
        ("theirs", (*engine, "--episodes", "20")),
    ):
        run(capsys, "evaluate", tmp_path / "a", *options, "--json", tmp_path / "f.json")
        (cells,) = json.loads((tmp_path / "f.json").read_text())["revisions"].values()
        figures[name] = {(c["horizon"], c["red"]): c for c in cells}
    for key, theirs in figures["theirs"].items():
        ours = figures["ours"][key]
        assert abs(ours["mean"] - theirs["mean"]) < 5 * ours["deviation"] / 20**0.5 + 1e-6
