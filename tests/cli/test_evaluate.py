"""`cavalcade evaluate`: the official protocol."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import cavalcade
from cavalcade.envs.cage2.protocol import HORIZONS, REDS, nine_cells
from cavalcade.runs.export import check_onnx
from cavalcade.runs.policies import load_policy
from cavalcade.targets.cage2.scoring import best_policy

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
