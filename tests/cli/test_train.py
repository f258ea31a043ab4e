"""`cavalcade train`, `report` and `profile` as a user types them."""

import json
import re

import pytest
import torch

from cavalcade.cli import main
from cavalcade.runs.directory import open_run

from .helpers import refused, run

SMALL = ("train", "cage2", "--num-envs", "20", "--hidden", "16,16", "--episodes", "400", "--threads", "1")


def test_train_says_what_it_does_and_scores_on_new_games(capsys, tmp_path):
    status, out, _ = run(capsys, *SMALL, "--run", tmp_path / "a", "--policies", "2", "--red", "mixed")
    assert status == 0
    assert f"run {tmp_path / 'a'}" in out
    assert "update 20/20  800 episodes" in out
    assert re.search(r"80,000 steps in [\d.]+ s: [\d,]+ steps/s", out)
    assert "held-out games, greedy, 1,000 episodes of 100 steps, revision head:" in out
    for red in ("bline", "meander", "sleep"):
        assert re.search(rf"{red} +seed 0 +-?[\d.]+ ± [\d.]+", out)
        assert re.search(rf"{red} +mean of 2 +-?[\d.]+ ± [\d.]+", out)
    assert "\x1b" not in out
    assert open_run(tmp_path / "a").config().ppo.hidden == (16, 16)


def test_quiet_is_quiet(capsys, tmp_path, monkeypatch):
    """Nothing is printed, not even that something takes its time."""
    monkeypatch.setattr("cavalcade.api.waiting", None)
    monkeypatch.setattr("cavalcade.cli.train.waiting", None)
    with pytest.raises(SystemExit) as stop:
        main([*SMALL, "--run", str(tmp_path / "a"), "--quiet"])
    assert not stop.value.code
    assert capsys.readouterr() == ("", "")


def test_runs_get_a_folder_of_their_own(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, out, _ = run(capsys, *SMALL)
    assert re.search(r"run runs/cage2-bline-\d{8}-\d{6}", out)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_recipe_and_options_on_top(capsys, tmp_path):
    args = ("train", "cage2", "--recipe", "cage2-meander", "--episodes", "200", "--epochs", "1", "--threads", "1")
    assert run(capsys, *args, "--run", tmp_path / "a", "--quiet")[0] == 0
    config = open_run(tmp_path / "a").config()
    assert (config.task.red, config.episodes, config.ppo.epochs) == ("meander", 200, 1)


def test_what_stands_in_the_way_of_speed_is_said(capsys, tmp_path):
    _, out, _ = run(capsys, *SMALL, "--run", tmp_path / "a", "--value-clip", "0.2")
    assert "no deduplication: value_clip is 0.2" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train"], ["cage2"]),
        (["train", "chess"], ["chess", "cage2"]),
        (["train", "cage2", "--speed", "9"], ["unknown option --speed"]),
        (["train", "cage2", "--red", "wolf"], ["wolf", "bline"]),
        (["train", "cage2", "--hidden", "64,x"], ["hidden", "x"]),
        (["train", "cage2", "--hidden", "0"], ["hidden is (0,)"]),
        (["train", "cage2", "--epochs", "0"], ["epochs is 0"]),
        (["train", "cage2", "--minibatches", "3"], ["5000 samples do not divide into 3"]),
        (["train", "cage2", "--episodes", "10"], ["10 episodes", "fewer than one update"]),
        (["train", "cage2", "--gamma", "2"], ["gamma is 2.0"]),
        (["train", "cage2", "--threads", "-1"], ["threads is -1"]),
        (["train", "cage2", "--recipe", "soup"], ["soup", "cage2-bline"]),
        (["train", "cage2", "--engine", "cpu", "--replay", "2"], ["replay is 2", "--engine torch"]),
        (["train", "cage2", "--dedup", "on", "--value-clip", "1"], ["value_clip is 1.0", "--dedup off"]),
        (["train", "--resume", "/nowhere"], ["/nowhere is not a run directory"]),
        (["train", "--resume"], ["--resume has no value; write --resume RUN"]),
        (["train", "--resume", "/nowhere", "--epochs", "3"], ["/nowhere is not a run directory"]),
        (["profile", "cage2", "--updates", "0"], ["updates is 0"]),
        (["profile", "cage2", "--cprofile", "/nowhere/x"], ["no folder /nowhere"]),
        (["train", "cage2", "--target", "chess"], ["unknown option --target; the target comes first"]),
        (["train", "cage2", "--seed", "99999999999"], ["seed is 99999999999"]),
        (["train", "cage2", "--recipe", "/bin/ls"], ["not YAML"]),
        (["evaluate", "sleep", "--json", "/nowhere/x"], ["no folder /nowhere"]),
        (["train", "mettagrid", "--simulator", "compiled", "--staleness", "1"], ["compiled, which has no workers"]),
        (["report"], ["no run given"]),
        (["report", "/nowhere"], ["/nowhere is not a run directory"]),
        (["export", "/nowhere", "--onnx", "x"], ["/nowhere is neither a run"]),
        (["evaluate", "wolf"], ["'wolf' is not a run", "a search, a policy file, model:NAME", "react-restore"]),
        (["evaluate", "sleep", "--episodes", "1"], ["episodes is 1"]),
        (["evaluate", "sleep", "--order", "reverse"], ["only greedy and greedy-corrected take one"]),
        (["evaluate", "greedy", "--order", "user"], ["lacks defender"]),
        (["evaluate", "sleep", "--simulator", "cyborg"], ["without --cyborg"]),
        (["evaluate", "sleep", "--simulator", "cyborg", "--cyborg", "/tmp"], ["/tmp is not a clone of cage-challenge"]),
        (["evaluate", "greedy", "--simulator", "cyborg", "--cyborg", "/tmp"], ["reads the true state"]),
    ],
)
def test_bad_input_is_answered_in_one_line(capsys, monkeypatch, tmp_path, args, words):
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, *args)
    for word in words:
        assert word in err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
@pytest.mark.parametrize("target", ["gym:CartPole-v1", "mettagrid"])
def test_a_device_that_is_not_there_is_refused(capsys, tmp_path, target):
    said = refused(capsys, "train", target, "--staleness", 2, "--device", "cuda", "--run", tmp_path / "refused")
    assert "device is cuda, but torch sees no GPU here; take --device cpu" in said
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


@pytest.mark.parametrize(
    ("command", "options", "said", "needed"),
    [
        ("train gym:CartPole-v1 --backend serial", "--staleness 1", "staleness is 1 with backend serial", ""),
        ("train gym:CartPole-v1 --backend pipe", "--staleness 2", "use --backend async or shared", ""),
        ("train gym:CartPole-v1", "--staleness -1", "staleness is -1; it must be at least 0", ""),
        ("train gym:CartPole-v1 --memory lstm --backend ray", "--staleness 0", "backend ray and staleness 0", ""),
        ("train gym:CartPole-v1 --replay 2", "--staleness 1", "replay is 2 with staleness 1", ""),
        ("train gym:CartPole-v1", "--no-vtrace", "no-vtrace is given with staleness 0", "--staleness 2"),
        ("train mettagrid --backend serial", "--staleness 1", "staleness is 1 with backend serial", ""),
        ("train cyborg --cyborg /tmp --order reverse", "--staleness 1", "staleness is 1 with an order", ""),
        ("train cyborg --cyborg /tmp --extras scans", "--staleness 1", "staleness is 1 with extras scans", ""),
        ("train cyborg --cyborg /tmp --policies 2", "--staleness 1", "staleness is 1 with 2 policies", ""),
        ("train gym:CartPole-v1", "--ray-address auto", "ray_address is auto with backend async", "--backend ray"),
        ("train cyborg --cyborg /tmp", "--ray-address auto", "ray_address is auto with backend async", "--backend ray"),
        ("train mettagrid", "--ray-address auto", "ray_address is auto with backend async", "--backend ray"),
        ("train cage2 --device cpu", "--precision bf16", "precision is bf16 with device cpu", "--device auto"),
        (
            "train cyborg --cyborg /tmp",
            "--true-state-every 5",
            "true_state_every is 5 without an order",
            "--order reverse",
        ),
        ("train cage2", "--open-until removed", "open_until is given without an order", "--order reverse"),
        ("train cage2", "--alignment-lambda 2", "alignment_lambda is given without an order", "--order reverse"),
        ("train cage2", "--alignment delta", "enforce or alignment is given without an order", "--order reverse"),
        ("train gym:CartPole-v1 --backend serial", "--workers 3", "workers is 3; it has no effect without", ""),
        ("train gym:CartPole-v1 --backend serial", "--max-restarts 3", "max_restarts is 3; it has no effect", ""),
        ("train gym:CartPole-v1 --backend serial", "--worker-timeout 9", "worker_timeout is 9.0; it has no effect", ""),
        ("train gym:CartPole-v1 --backend shared", "--async-factor 4", "no effect without --backend async", ""),
        ("search cyborg --cyborg /tmp --backend serial", "--workers 3", "workers is 3; it has no effect without", ""),
        ("train mettagrid --backend pipe", "--async-factor 4", "no effect without --backend async", ""),
        ("search cage2 --device cpu", "--precision fp32", "precision is fp32 with device cpu", "--device auto"),
        ("search cage2", "--ray-address auto", "ray_address is given with executor local", "--executor ray"),
        ("search cage2", "--task-cpus 2", "task_cpus is given with executor local", "--executor ray"),
        ("search cage2", "--orders reverse", "orders are given with searcher gp-ucb", "--searcher fixed"),
        (
            "search cyborg --cyborg /tmp --executor ray",
            "--task-updates 3",
            "task_updates is 3 with target cyborg; games of CybORG cannot be saved",
            "",
        ),
        ("search cage2", "--workers 3", "workers is given with cage2", ""),
        ("search cage2", "--true-state-every 5", "true_state_every is given with cage2", ""),
    ],
)
def test_options_are_refused_where_they_have_no_effect(capsys, tmp_path, configured, command, options, said, needed):
    """… and taken where they have one."""
    args = [*command.split(), *options.split()]
    assert said in refused(capsys, *args, "--run", tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    if needed:
        configured(*args, *needed.split())


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("train mettagrid", "--infos word"),
        ("train mettagrid", "--true-state-every 5"),
        ("train gym:CartPole-v1", "--true-state-every 5"),
        ("train cage2", "--staleness 1"),
        ("train cage2", "--ray-address auto"),
        ("train cage2", "--workers 2"),
        ("search cyborg --cyborg /tmp", "--staleness 1"),
        ("search cage2", "--staleness 1"),
    ],
)
def test_options_of_other_targets_are_unknown(capsys, tmp_path, command, option):
    name, value = option.split()
    said = refused(capsys, *command.split(), name, value, "--run", tmp_path / "refused")
    assert f"unknown option {name}" in said
    assert not (tmp_path / "refused").exists()


def test_presets_may_have_settings_of_another_backend(configured):
    config = configured("train", "mettagrid", "--hardware", "original", "--backend", "serial")
    assert (config.host.backend, config.host.workers) == ("serial", 4)


def test_a_finished_run_says_how_to_extend_it_and_keeps_its_scores(capsys, tmp_path, monkeypatch):
    run(capsys, *SMALL, "--run", tmp_path / "a b")
    monkeypatch.setattr("cavalcade.runs.heldout.score_heldout", None)
    status, out, err = run(capsys, "train", "--resume", tmp_path / "a b")
    assert status == 0, err
    extend = f"finished at update 20; extend it with: cavalcade train --resume '{tmp_path / 'a b'}' --episodes 800\n"
    assert extend in out
    assert "steps/s" not in out
    assert re.search(r"held-out bline seed 0: -[\d.]+ ± [\d.]+, 1,000 episodes\n", out)


def test_a_folder_that_holds_a_run_is_not_overwritten(capsys, tmp_path):
    run(capsys, *SMALL, "--run", tmp_path / "a", "--quiet")
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    err = refused(capsys, *SMALL, "--run", tmp_path / "a", "--quiet")
    assert "already contains a run; resume with --resume" in err
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before


def test_report_draws_runs_into_one_file(capsys, tmp_path):
    for name, policies in (("one", 1), ("three", 3)):
        run(capsys, *SMALL, "--run", tmp_path / name, "--policies", policies, "--quiet")
    status, out, _ = run(capsys, "report", tmp_path / "one", tmp_path / "three", "--out", tmp_path / "r.html")
    assert (status, out) == (0, f"{tmp_path / 'r.html'}\n")
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") == 1
    assert "<td>one</td><td>1</td><td>400</td>" in page
    assert "<td>three</td><td>3</td><td>400</td>" in page
    assert 'src="http' not in page
    assert "<script" not in page
    args = ("report", tmp_path / "three", "--picture")
    assert run(capsys, *args, tmp_path / "p.png")[1] == f"{tmp_path / 'three' / 'report.html'}\n{tmp_path / 'p.png'}\n"
    assert (tmp_path / "p.png").read_bytes()[1:4] == b"PNG"
    status, _, err = run(capsys, *args, tmp_path / "p.doc")
    assert status == 2
    assert "it must end in one of" in err
    (tmp_path / "one" / "metrics.jsonl").write_text("nonsense\n")
    assert "metrics.jsonl cannot be read" in refused(capsys, "report", tmp_path / "one")
    (tmp_path / "one" / "metrics.jsonl").write_text("")
    assert "has no updates yet" in refused(capsys, "report", tmp_path / "one")


def test_profile_names_the_bottleneck_and_the_bound(capsys, tmp_path):
    raw = tmp_path / "raw"
    args = ("--num-envs", "20", "--updates", "3", "--threads", "1", "--cprofile", raw)
    status, out, _ = run(capsys, "profile", "cage2", *args)
    assert status == 0
    for phase in ("act", "step", "store", "advantage", "update"):
        assert re.search(rf"^  {phase} +[\d.]+%", out, re.MULTILINE)
    assert re.search(r"bottleneck: \w+ \(\d+% of the time\)", out)
    assert re.search(r"bound [\d,]+ steps/s, reached \d+%", out)
    import pstats

    assert pstats.Stats(str(raw)).total_calls > 0  # pyright: ignore


def test_metrics_go_to_tensorboard_too(capsys, tmp_path):
    run(capsys, *SMALL, "--run", tmp_path / "a", "--quiet", "--writers", "tensorboard")
    assert list((tmp_path / "a" / "tensorboard").iterdir())


def test_rows_of_the_log_are_json(capsys, tmp_path):
    run(capsys, *SMALL, "--run", tmp_path / "a", "--quiet")
    rows = [json.loads(row) for row in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    assert all(0 < row["distinct_observations"][0] < 1 for row in rows)
