"""`cavalcade search` and its report as a user types them."""

import contextlib
import csv
import functools
import io
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cavalcade.cli import main
from cavalcade.cli.search import translate
from cavalcade.core.errors import RunError
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.runs.history import read_history
from cavalcade.search.policies import load_search_policy

from .helpers import refused, run

SMALL = (
    "search", "cage2", "--num-envs", "6", "--hidden", "8", "--n-workflows", "4", "--max-episodes", "2",
    "--parallel-orders", "2", "--score-episodes", "10", "--threads", "1", "--confirm", "2", "--rivals", "1",
    "--confirm-batches", "1",
)  # fmt: skip
TINY = ("search", "gridworld", "--num-envs", "6", "--n-workflows", "3", "--max-episodes", "3", "--threads", "1")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The directory of a small search, and what it printed."""
    path, printed = tmp_path_factory.mktemp("runs") / "search", io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stop:
        main([*SMALL, "--run", str(path)])
    assert not stop.value.code
    return path, printed.getvalue()


@pytest.fixture(scope="module")
def finished(told):
    return told[0]


def test_search_tells_what_it_does_and_what_it_found(told):
    _, out = told
    assert len(re.findall(r"^ +[\d.]+ s  search ", out, re.MULTILINE)) == 4
    assert len(re.findall(r"^ +[\d.]+ s  confirm ", out, re.MULTILINE)) == 4
    assert len(re.findall(r"^ +[\d.]+ s  control ", out, re.MULTILINE)) == 6
    for words in (
        "posterior",
        "effect of putting one before the other",
        "plain PPO",
        "better than",
        "the order matters",
    ):
        assert words in out
    assert re.search(r"scoring took [\d.]+%", out)
    assert "\x1b" not in out


def test_a_resumed_search_changes_only_what_has_no_effect_on_results(capsys, finished):
    before = (finished / "search.csv").read_bytes()
    for option, said in (
        ("--total-episodes 999999", "total_episodes is 999999; in"),
        ("--learning-rate 1e-3", "learning_rate is 0.001; in"),
        ("--num-envs 7", "num_envs is 7; in"),
        ("--confirm 3", "confirm is 3; in"),
        ("--max-restarts 3", "max_restarts is given with cage2"),
    ):
        err = refused(capsys, "search", "--resume", finished, *option.split())
        assert said in err
        assert "given with" in err or "cannot change, begin a new search" in err
    status, _, err = run(
        capsys, "search", "--resume", finished, "--threads", "1", "--keep-checkpoints", "1", "--checkpoint-every", "7",
        "--quiet",
    )  # fmt: skip
    assert status == 0, err
    assert (finished / "search.csv").read_bytes() == before
    (event,) = read_history(finished)
    assert event["changes"] == {"checkpoint_every": [100, 7], "keep_checkpoints": [2, 1]}
    assert "checkpoint_every: 7" in (finished / "config.yaml").read_text()


def test_a_summary_and_a_report_are_left(finished):
    summary = json.loads((finished / "summary.json").read_text())
    assert len(summary["effects"]) == 10
    assert len(summary["results"]) == 14
    assert summary["answer"]
    page = (finished / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert 'src="http' not in page


@pytest.mark.parametrize("name", ["report.html", "summary.json"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_written_and_nothing_else_is(capsys, finished, tmp_path, name, make):
    run_in = Path(shutil.copytree(finished, tmp_path / "search"))
    (run_in / name).unlink()
    make(run_in / name)
    others = {path: path.read_bytes() for path in run_in.iterdir() if path.is_file()}
    words = f"{name} cannot be written: it is not a file; remove it"
    assert words in refused(capsys, "search", "--resume", run_in, "--quiet")
    assert others == {path: path.read_bytes() for path in others}


def test_damaged_logs_of_a_search_are_refused_before_anything_is_written(capsys, finished, tmp_path):
    run_in = Path(shutil.copytree(finished, tmp_path / "search"))
    damaged = bytearray((run_in / "search.csv").read_bytes())
    damaged[-10] ^= 0x80  # no UTF-8
    (run_in / "search.csv").write_bytes(damaged)
    (run_in / "summary.json").write_text("as before")
    assert "search.csv cannot be read" in refused(capsys, "search", "--resume", run_in, "--quiet")
    assert (run_in / "summary.json").read_text() == "as before"
    rows = (finished / "search.csv").read_text().splitlines()
    cells = dict(zip(rows[0].split(","), rows[2].split(","), strict=True))
    for name in ("score", "number", "episodes"):
        text = "(".rjust(len(cells[name]), "1")  # of the same length: the log is as long as the checkpoint says
        rows[2] = ",".join((cells | {name: text}).values())
        (run_in / "search.csv").write_text("\n".join([*rows, ""]))
        err = refused(capsys, "search", "--resume", run_in, "--quiet")
        assert f"search.csv cannot be read: {name} of training " in err
        assert f"is {text!r}; restore it" in err
        assert (run_in / "summary.json").read_text() == "as before"
    (run_in / "decisions.jsonl").unlink()
    os.mkfifo(run_in / "decisions.jsonl")
    assert "decisions.jsonl cannot be read" in refused(capsys, "search", "audit", run_in)


def test_report_draws_a_search_again(capsys, finished, tmp_path):
    status, out, _ = run(
        capsys, "report", finished, "--out", tmp_path / "r.html", "--picture", tmp_path / "ranking.svg"
    )
    assert status == 0
    assert (tmp_path / "r.html").read_text().count("<svg") == 4
    assert (tmp_path / "ranking.svg").exists()
    assert out.splitlines() == [str(tmp_path / "r.html"), str(tmp_path / "ranking.svg")]
    assert "name one at a time" in refused(capsys, "report", finished, finished)
    (tmp_path / "search.csv").write_text("")
    assert "has no finished search" in refused(capsys, "report", tmp_path)


def test_policies_of_a_search_are_ordinary_policies(capsys, finished, tmp_path):
    """They are scored, exported and loaded with their order."""
    with (finished / "search.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "order"]
    trained = {row["order"] for row in rows}
    best = json.loads((finished / "summary.json").read_text())["best"]
    quick = ("--episodes", "5", "--revisions", "head")
    status, out, _ = run(capsys, "evaluate", finished, "--order", "best", *quick)
    assert status == 0
    assert f"order {best}," in out
    other = next(order for order in trained if order != best)
    assert f"order {other}," in run(capsys, "evaluate", finished, "--order", other, *quick)[1]
    number = next(row["number"] for row in rows if row["order"] == other)
    assert f"member-{number}, order {other}" in run(capsys, "evaluate", finished, "--member", number, *quick)[1]
    quick_game = ("--horizon", "3")
    status, out, _ = run(capsys, "play", finished, *quick_game)
    assert status == 0
    assert f", order {best}\n" in out
    assert out.count(";  value ") == 3
    assert f", order {other}\n" in run(capsys, "play", finished, "--order", other, *quick_game)[1]
    assert f"member-{number}, order {other}" in run(capsys, "play", finished, "--member", number, *quick_game)[1]
    assert "is not a subtask" in refused(capsys, "play", finished, "--order", "chess")
    status, out, _ = run(capsys, "export", finished, "--order", other, "--onnx", tmp_path / "p.onnx")
    assert status == 0
    assert "its mask is part of the graph" in out
    assert "is not a subtask" in refused(capsys, "evaluate", finished, "--order", "chess", *quick)
    untrained = next(CAGE2.text(o) for o in CAGE2.orders() if CAGE2.text(o) not in trained)
    assert "has not trained it" in refused(capsys, "evaluate", finished, "--order", untrained, *quick)
    assert "no training of an order" in refused(capsys, "export", finished, "--member", "999", "--onnx", tmp_path / "x")
    given = ("--order", other, "--member", number)
    assert "leave one of them out" in refused(capsys, "evaluate", finished, *given, *quick)
    err = refused(capsys, "export", finished, "--file", tmp_path / "p.safetensors", "--onnx", tmp_path / "q.onnx")
    assert f"train the order with: cavalcade train cage2 --order '{best}'" in err
    assert not (tmp_path / "p.safetensors").exists()
    assert not (tmp_path / "q.onnx").exists()


def test_the_best_order_is_the_one_that_the_search_found(finished, tmp_path):
    """Confirmations decide, not the highest mean; a search that is not finished goes by means."""
    shutil.copytree(finished, tmp_path / "a")
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert load_search_policy(tmp_path / "a").order == summary["best"]
    with (tmp_path / "a" / "search.csv").open(newline="") as file:
        trained = {row["order"] for row in csv.DictReader(file) if row["kind"] == "order"}
    other = min(trained - {summary["best"]})
    (tmp_path / "a" / "summary.json").write_text(json.dumps(summary | {"best": other}))
    assert load_search_policy(tmp_path / "a").order == other
    (tmp_path / "a" / "summary.json").write_text("{")
    with pytest.raises(RunError, match=r"summary\.json cannot be read"):
        load_search_policy(tmp_path / "a")
    (tmp_path / "a" / "summary.json").unlink()
    assert load_search_policy(tmp_path / "a").order in trained


def test_the_policy_of_an_order_plays_as_it_was_scored(finished):
    """Loaded with its order as a constant, on observations without it, a policy gets the score of the search."""
    with (finished / "search.csv").open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["kind"] == "order" and row["purpose"] == "search")
    saved = load_search_policy(finished, member=int(row["number"]))
    env = WorkflowCage2(10, red="bline", stream="evaluate", show_order=False)
    env.assign(slice(0, 10), order=CAGE2.parse(row["order"]), seed=1 << 30)
    player = saved.runner(0)
    for _ in range(100):
        env.step(player(env))
    assert env.episode_stats[:, 0].mean() == pytest.approx(float(row["heldout"]), abs=1e-3)
    compliance = env.episode_stats[:, env.episode_stat_names.index("compliance")]
    assert (compliance[~np.isnan(compliance)] == 1).all()


def test_a_search_is_not_a_training(capsys, finished):
    assert "is the run of a search; resume with: cavalcade search" in refused(capsys, "train", "--resume", finished)
    err = refused(capsys, *SMALL, "--run", finished)
    assert "already contains a run" in err


def test_searches_over_seeds(capsys, tmp_path):
    status, out, _ = run(capsys, *TINY, "--run", tmp_path / "a", "--seeds", "2", "--confirm", "2", "--rivals", "1")
    assert status == 0
    assert "over 2 searches:" in out
    assert re.search(r"seed 0: [\w ]+; best \S+, confirmed", out)
    assert (tmp_path / "a" / "seed-1" / "summary.json").exists()
    (tmp_path / "a" / "seed-1" / "summary.json").unlink()
    status, again, _ = run(capsys, *TINY, "--run", tmp_path / "a", "--seeds", "2", "--confirm", "2", "--rivals", "1")
    assert status == 0
    assert again[again.index("over 2") :] == out[out.index("over 2") :]
    err = refused(capsys, *TINY, "--run", tmp_path / "a", "--seeds", "2", "--confirm", "1")
    assert "has other settings: " in err
    assert "confirm 2 before, 1 now" in err


def test_alignment_selects_rewards_and_says_so(capsys, tmp_path):
    _, out, _ = run(capsys, *TINY, "--run", tmp_path / "a", "--alignment-lambda", "3", "--confirm", "0")
    assert "--alignment-lambda without --enforce: orders are rewarded, not enforced (--enforce reward)" in out
    assert "enforce: reward" in (tmp_path / "a" / "config.yaml").read_text()


def test_options_of_the_scripts_work_as_written():
    args = translate(["cage2", "--n-envs", "200", "--red-agent", "B_lineAgent", "--gp-beta=2.0", "--max-steps", "100"])
    assert args == ["cage2", "--num-envs", "200", "--red", "bline", "--ucb-beta=2.0", "--horizon", "100"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["search"], ["cage2"]),
        (["search", "chess"], ["chess"]),
        (["search", "cage2", "--red", "wolf"], ["wolf"]),
        (["search", "cage2", "--total-episodes", "10"], ["total_episodes is 10; one order takes 5000"]),
        (["search", "cage2", "--searcher", "fixed"], ["fixed without orders"]),
        (["search", "cage2", "--searcher", "fixed", "--orders", "user"], ["lacks defender"]),
        (["search", "cage2", "--searcher", "fixed", "--orders", "a>b"], ["'a' in order 'a>b' is not a subtask"]),
        (["search", "cage2", "--parallel-orders", "121", "--n-workflows", "130"], ["there are only 120 orders"]),
        (["search", "cage2", "--gate"], ["gate without compliance_threshold"]),
        (["search", "cage2", "--seeds", "0"], ["seeds is 0"]),
        (["search", "cage2", "--alignment", "love"], ["love", "potential"]),
        (["search", "cage2", "--alignment-lambda", "-1"], ["alignment_lambda is -1.0"]),
        (["search", "cage2", "--enforce", "love"], ["love", "lagrangian"]),
        (["search", "cage2", "--enforce", "mask", "--alpha", "1"], ["alignment rewards need --enforce reward"]),
        (["search", "cage2", "--alignment", "alpha-beta", "--alignment-lambda", "1"], ["alignment_lambda is 1.0 with"]),
        (["search", "cage2", "--follow-threshold", "1.5"], ["follow_threshold is 1.5; it must be from 0 to 1"]),
        (["search", "cage2", "--margin", "0"], ["margin is 0.0"]),
        (["search", "gridworld", "--open-until", "removed"], ["open_until is given with gridworld"]),
        (["train", "cage2", "--enforce", "mask-true"], ["enforce is given without an order; name one with --order"]),
        (["train", "cage2", "--order", "a>b"], ["'a' in order 'a>b' is not a subtask"]),
        (["train", "gym:CartPole-v1", "--order", "user"], ["--order"]),
        (["evaluate", "random", "--order", "critical_first"], ["only greedy and greedy-corrected take one"]),
        (
            ["search", "gridworld", "--red", "meander"],
            ["red is given with gridworld; only games of CAGE-2 have it"],
        ),
        (["search", "--resume", "/nowhere"], ["/nowhere is not a run directory"]),
        (["bench", "gp", "--repeats", "1"], ["repeats is 1"]),
        (["bench", "gp", "--checkpoints", "9,3"], ["they must be above 0 and rise"]),
        (["search", "cage2", "--engine", "cpu", "--replay", "2"], ["replay is 2"]),
        (["search", "gridworld", "--score", "tail", "--num-envs", "1", "--max-episodes", "1"], ["it takes two"]),
        (["bench", "gp", "--scores", "/nowhere"], ["/nowhere has no finished search"]),
        (["bench", "speedup", "--workers", "0"], ["workers is 0"]),
    ],
)
def test_bad_input_is_answered_in_one_line(capsys, monkeypatch, tmp_path, args, words):
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, *args)
    for word in words:
        assert word in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


def test_bench_gp_prints_and_writes(capsys, tmp_path, finished):
    args = ("--repeats", "2", "--methods", "gp-ucb,random", "--objectives", "pairwise", "--noises", "1.0")
    status, out, _ = run(capsys, "bench", "gp", *args, "--checkpoints", "2,3", "--json", tmp_path / "f.json")
    assert status == 0
    assert "random − gp-ucb, paired" in out
    assert len(json.loads((tmp_path / "f.json").read_text())["pairwise 1"]["gp-ucb"]) == 2
    assert "fewer than two trainings" in run(capsys, "bench", "gp", "--scores", finished)[2]


def test_bench_speedup_prints_every_row(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))  # no C++ for three updates
    small = ("--seconds", "0.001", "--workers", "2", "--num-envs", "8", "--shared-workers", "2,4")
    status, out, _ = run(capsys, "bench", "speedup", *small, "--json", tmp_path / "f")
    assert status == 0
    assert len(json.loads((tmp_path / "f").read_text())["steps"]) == 16
    assert "shared memory instead of pipes" in out
    assert "from the first row to the last:" in out


def test_shares_are_merged_and_decisions_made_again(capsys, tmp_path):
    small = ["gridworld", "--num-envs", "5", "--max-episodes", "2", "--hidden", "8", "--score-episodes", "4"]
    small += ["--total-episodes", "400", "--confirm", "1", "--rivals", "1", "--threads", "1"]
    shares = [str(tmp_path / f"share-{i}") for i in (1, 2)]
    for i, share in enumerate(shares, 1):
        run(capsys, "search", *small, "--searcher", "exhaustive", "--shard", f"{i}/2", "--run", share)
    _, out, _ = run(capsys, "search", "merge", *shares, "--run", str(tmp_path / "whole"), "--threads", "1")
    assert "24 trainings of 2 shards" in out
    assert (tmp_path / "whole" / "report.html").exists()
    _, out, _ = run(capsys, "search", "audit", str(tmp_path / "whole"))
    assert out.endswith("24 decisions made again, 0 differ\n")
    assert run(capsys, "search", "replay", str(tmp_path / "whole"))[1] == out  # its name in 0.1
    run(capsys, "search", *small, "--executor", "ray", "--n-workflows", "3", "--run", str(tmp_path / "ray"))
    _, out, _ = run(capsys, "search", "audit", str(tmp_path / "ray"))
    assert out.endswith("3 decisions made again, 0 differ\n")
