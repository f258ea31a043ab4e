"""`cavalcade search` and its report as a user types them."""

import json
import re

import pytest

from cavalcade.cli.search import translate

from .helpers import refused, run

SMALL = (
    "search", "cage2", "--num-envs", "6", "--hidden", "8", "--n-workflows", "4", "--max-episodes", "2",
    "--together", "2", "--score-episodes", "10", "--threads", "1", "--confirm", "2", "--rivals", "1",
)  # fmt: skip
TINY = ("search", "checkpoints", "--num-envs", "6", "--n-workflows", "3", "--max-episodes", "3", "--threads", "1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    from cavalcade.cli import main

    path = tmp_path_factory.mktemp("runs") / "search"
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, "--run", str(path), "--quiet"])
    assert not stop.value.code
    return path


def test_search_tells_what_it_does_and_what_it_found(capsys, tmp_path):
    status, out, _ = run(capsys, *SMALL, "--run", tmp_path / "a")
    assert status == 0
    assert len(re.findall(r"^ +[\d.]+ s  search ", out, re.MULTILINE)) == 4
    assert len(re.findall(r"^ +[\d.]+ s  confirm ", out, re.MULTILINE)) == 4
    assert len(re.findall(r"^ +[\d.]+ s  control ", out, re.MULTILINE)) == 8
    for words in ("posterior", "effect of putting one before the other", "plain PPO", "winner: ", "the order"):
        assert words in out
    assert re.search(r"scoring took [\d.]+%", out)
    assert "\x1b" not in out


def test_a_summary_and_a_report_are_left(finished):
    summary = json.loads((finished / "summary.json").read_text())
    assert len(summary["effects"]) == 10
    assert len(summary["results"]) == 16
    assert summary["answer"]
    page = (finished / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "<script" not in page
    assert 'src="http' not in page


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


def test_a_search_is_not_a_training(capsys, finished):
    assert "its policies see an order" in refused(capsys, "evaluate", finished)
    assert "is the run of a search; go on with: cavalcade search" in refused(capsys, "train", "--resume", finished)
    err = refused(capsys, *SMALL, "--run", finished)
    assert "holds a run already" in err


def test_searches_over_seeds(capsys, tmp_path):
    status, out, _ = run(capsys, *TINY, "--run", tmp_path / "a", "--seeds", "2", "--confirm", "2", "--rivals", "1")
    assert status == 0
    assert "over 2 searches:" in out
    assert re.search(r"seed 0: \S+  confirmed", out)
    assert (tmp_path / "a" / "seed-1" / "summary.json").exists()
    (tmp_path / "a" / "seed-1" / "summary.json").unlink()
    status, again, _ = run(capsys, *TINY, "--run", tmp_path / "a", "--seeds", "2", "--confirm", "2", "--rivals", "1")
    assert status == 0
    assert again[again.index("over 2") :] == out[out.index("over 2") :]
    err = refused(capsys, *TINY, "--run", tmp_path / "a", "--seeds", "2", "--confirm", "1")
    assert "has other settings: rivals 1 before, 7 now; confirm" in err or "confirm 2 before, 1 now" in err


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
        (["search", "cage2", "--searcher", "fixed", "--orders", "a>b"], ["'a' in order 'a>b' is no subtask"]),
        (["search", "cage2", "--together", "121", "--n-workflows", "130"], ["there are only 120 orders"]),
        (["search", "cage2", "--gate"], ["gate without compliance_threshold"]),
        (["search", "cage2", "--seeds", "0"], ["seeds is 0"]),
        (["search", "cage2", "--alignment", "love"], ["love", "potential"]),
        (["search", "cage2", "--alignment-lambda", "-1"], ["alignment_lambda is -1.0"]),
        (
            ["search", "checkpoints", "--red", "meander"],
            ["red is given with checkpoints; only games of CAGE-2 have it"],
        ),
        (["search", "--resume", "/nowhere"], ["/nowhere is no run"]),
        (["bench", "gp", "--repeats", "1"], ["repeats is 1"]),
        (["bench", "gp", "--checkpoints", "9,3"], ["they must be above 0 and rise"]),
        (["search", "cage2", "--learner", "fused", "--replay", "2"], ["replay is 2"]),
        (["search", "checkpoints", "--score", "tail", "--num-envs", "1", "--max-episodes", "1"], ["it takes two"]),
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


def test_bench_speedup_prints_every_row(capsys, tmp_path):
    status, out, _ = run(capsys, "bench", "speedup", "--seconds", "0.01", "--workers", "2", "--json", tmp_path / "f")
    assert status == 0
    assert len(json.loads((tmp_path / "f").read_text())["steps"]) == 14
    assert "shared memory instead of pipes" in out
    assert "from the first row to the last:" in out


def test_shares_are_merged_and_decisions_made_again(capsys, tmp_path):
    small = ["checkpoints", "--num-envs", "5", "--max-episodes", "2", "--hidden", "8", "--score-episodes", "4"]
    small += ["--total-episodes", "400", "--confirm", "1", "--rivals", "1", "--threads", "1"]
    shares = [str(tmp_path / f"share-{i}") for i in (1, 2)]
    for i, share in enumerate(shares, 1):
        run(capsys, "search", *small, "--searcher", "exhaustive", "--shard", f"{i}/2", "--run", share)
    _, out, _ = run(capsys, "search", "merge", *shares, "--run", str(tmp_path / "whole"), "--threads", "1")
    assert "24 trainings of 2 shares" in out
    assert (tmp_path / "whole" / "report.html").exists()
    _, out, _ = run(capsys, "search", "replay", str(tmp_path / "whole"))
    assert out.endswith("24 decisions made again, 0 differ\n")
    run(capsys, "search", *small, "--engine", "ray", "--n-workflows", "3", "--run", str(tmp_path / "ray"))
    _, out, _ = run(capsys, "search", "replay", str(tmp_path / "ray"))
    assert out.endswith("3 decisions made again, 0 differ\n")
