"""The command line: what a user types, what comes back."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from cavalcade.cli import VERBS, main
from cavalcade.core.version import __version__
from cavalcade.envs.cage2 import scenario as sc
from cavalcade.envs.cage2.trace import SHIPPED
from cavalcade.targets.cage2.play import action_from

from .helpers import refused, run, without_notices
from .terminal import on_terminal


def test_help_lists_every_verb_in_a_line(capsys):
    for args in ((), ("--help",), ("-h",)):
        status, out, _ = run(capsys, *args)
        assert status == 0
        for verb, line in VERBS.items():
            assert re.search(rf"^  {verb} +{re.escape(line)}$", out, re.MULTILINE)


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help(capsys, verb):
    status, out, _ = run(capsys, verb, "--help")
    assert status == 0
    assert f"usage: cavalcade {verb}" in out


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"cavalcade {__version__}\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["fly"],
            [
                "unknown command 'fly'",
                "bench, completion, evaluate, export, models, payoff, play, profile, record, report, search, train, ",
            ],
        ),
        (["play", "--red", "wolf"], ["red is 'wolf'", "bline", "meander", "sleep", "mixed"]),
        (["play", "--wings", "2"], ["unknown option --wings", "cavalcade play --help-all lists the options"]),
        (["play", "--horizon", "ten"], ["horizon is 'ten'", "a whole number"]),
        (["play", "--horizon", "-1"], ["horizon is -1", "at least"]),
        (["play", "--horizon", "0"], ["horizon is 0", "at least 1"]),
        (["play", "--delay", "-1"], ["delay is -1.0"]),
        (["bench", "magic"], ["magic", "sim"]),
        (["bench", "train", "--seeds", "0"], ["seeds is 0"]),
        (["bench", "train", "--seconds", "0"], ["seconds is 0.0"]),
        (["bench", "train", "--parts", "speed,fun"], ["fun", "population"]),
        (["bench", "sim", "--seconds", "0"], ["seconds is 0.0", "above 0"]),
        (["bench", "sim", "--threads", "-1"], ["threads is -1"]),
        (["bench", "sim", "--json", "/nowhere/at/all.json"], ["/nowhere/at/all.json", "no folder"]),
        (["verify", "/nowhere.npz"], ["/nowhere.npz: no such file"]),
        (["verify", __file__], ["not a complete file of recorded episodes"]),
        (["verify", os.path.dirname(__file__)], ["no .npz file"]),
        (["verify", "--fast", "x"], ["--fast", "--device"]),
    ],
)
def test_bad_input_is_answered_in_one_line(capsys, args, words):
    err = refused(capsys, *args)
    for word in words:
        assert word in err


def test_verify_recorded_episodes(capsys, data):
    files = sorted(str(path) for path in data.glob("head_red-sleep*.npz"))
    status, out, _ = run(capsys, "verify", *files)
    assert status == 0
    assert "3 files, 14 episodes, 700 steps, 0 mismatches" in out
    for field in ("obs", "obs2", "reward", "red_type", "s_malware", "draws"):
        assert f" {field}" in out


def test_verify_without_files_replays_what_comes_with_the_package(capsys, data):
    """Both revisions and all Reds, Green on and off; the same files as in tests/data, and small."""
    files = sorted(SHIPPED.glob("*.npz"))
    assert sum(file.stat().st_size for file in files) < 1e6
    assert all(file.read_bytes() == (data / file.name).read_bytes() for file in files)
    kinds = {(re.match(r"(.*?)_red-(.*?)_", file.name)[1], re.match(r".*_red-(.*?)_", file.name)[1]) for file in files}
    assert kinds == {(revision, red) for revision in sc.REVISIONS for red in sc.REDS[: sc.MIXED]}
    status, out, _ = run(capsys, "verify")
    assert status == 0
    assert re.search(rf"\n{len(files)} files, \d+ episodes, [\d,]+ steps, 0 mismatches\n", out)


def test_verify_stops_at_a_difference(capsys, data, tmp_path):
    with np.load(data / "head_red-sleep_blue-decoy_green-off_T50_seed1036.npz") as archive:
        fields = dict(archive.items())
    fields["s_decoys"] = fields["s_decoys"].copy()
    fields["s_decoys"][2, 8, 1, 6] ^= 1
    np.savez(tmp_path / "changed.npz", **fields)
    status, out, _ = run(capsys, "verify", str(tmp_path))
    assert status == 1
    expected = "changed.npz: episode 2, step 7, s_decoys[Enterprise0][Tomcat] (challenge variant): expected "
    assert expected in out


def test_play_in_plain_text(capsys):
    status, out, _ = run(capsys, "play", "--blue", "react", "--red", "meander", "--horizon", "25", "--green")
    assert status == 0
    assert out.count("\nstep ") == 25
    assert "DiscoverRemoteSystems User" in out
    assert out.splitlines()[-1].startswith("react against meander: 25 steps, return ")
    assert "\x1b" not in out


def test_play_repeats_itself(capsys):
    args = ("play", "--blue", "random", "--red", "mixed", "--horizon", "20", "--seed", "3")
    assert run(capsys, *args) == run(capsys, *args)
    assert run(capsys, *args)[1] != run(capsys, *args[:-1], "4")[1]


def test_play_on_a_terminal():
    """On a terminal the picture is redrawn in place."""
    status, shown = on_terminal("play", "--horizon", "3", "--delay", "0", "--blue", "sleep", COLUMNS="100")
    assert status == 0
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
    assert "step 3   reward 0.0" in plain
    assert "sleep against bline: 3 steps" in plain


def test_a_person_plays():
    typed = "?\nrestore user1\nfly\n139\n\nq\n"
    command = [sys.executable, "-m", "cavalcade", "play", "--blue", "human", "--horizon", "10"]
    done = subprocess.run(command, input=typed, capture_output=True, text=True, check=True)
    assert " 144 Restore User4" in done.stdout
    assert "'fly' is not an action; type a number from 0 to 144" in done.stdout
    assert "Blue  Restore User1" in done.stdout
    assert "Blue  Restore Op_Server0" in done.stdout
    assert "human against bline: 3 steps, return -2.0" in done.stdout


def test_actions_by_name_and_number():
    assert action_from("") == 0
    assert action_from("144") == 144
    for i, name in enumerate(sc.ACTIONS):
        assert action_from(name.lower()) == action_from(name.replace(" ", "")) == i


def test_bench_prints_and_writes(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("cavalcade.cli.bench.sim.BATCHES", (1, 600))
    target = tmp_path / "figures.json"
    status, out, _ = run(capsys, "bench", "sim", "--seconds", "0.01", "--no-start", "--json", str(target))
    assert status == 0
    figures = json.loads(target.read_text())
    assert [(row["red"], row["num_envs"]) for row in figures["batches"]] == [
        ("bline", 1), ("bline", 600), ("meander", 1), ("meander", 600),
    ]  # fmt: skip
    assert all(rate > 0 for row in figures["batches"] for rate in row["steps_per_second"].values())
    assert figures["machine"]["cores"] == os.cpu_count()
    assert figures["state_bytes"] <= 160
    assert "one environment through gymnasium.make" in out


def test_bench_train_prints_and_writes(capsys, tmp_path):
    target = tmp_path / "figures.json"
    args = ("--parts", "recipes,overhead,population", "--seconds", "0.01", "--seeds", "2", "--episodes", "200")
    status, out, _ = run(capsys, "bench", "train", *args, "--json", target)
    assert status == 0
    figures = json.loads(target.read_text())
    rows = [(row["recipe"], row["episodes"], row["seed"]) for row in figures["recipes"]]
    assert rows == [(f"cage2-{red}", 200, seed) for red in ("bline", "meander") for seed in (0, 1)]
    assert all(row["heldout"] < 0 for row in figures["recipes"])
    assert set(figures["population"]) == {"1", "120"}
    assert set(figures["overhead"]) == {"recorded", "bare"}
    assert "logs and checkpoints:" in out


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"), RuntimeError("out of memory")]
)
def test_too_little_memory_is_one_line(capsys, monkeypatch, error):
    def fail(_args):
        raise error

    monkeypatch.setattr("cavalcade.cli.verify.run", fail)
    assert "not enough memory; give smaller sizes" in refused(capsys, "verify")


def test_other_errors_keep_their_traceback(monkeypatch):
    def fail(_args):
        raise RuntimeError("a defect")

    monkeypatch.setattr("cavalcade.cli.verify.run", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["verify"])


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m cavalcade play --horizon 100 | head -n 2"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("step 0")
    assert without_notices(done.stderr) == ""


def test_errors_are_one_line_on_plain_terminals_too():
    done = subprocess.run(
        [sys.executable, "-m", "cavalcade", "export", "x"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.stderr == "cavalcade export: nothing to write; give --onnx FILE, --file FILE or --agent FILE\n"
