"""Runs that cannot be lost: stopped, killed, out of disk, tampered with; and what comes of them afterwards."""

import json
import os
import random
import resource
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cavalcade.cli import main
from cavalcade.config import PPOConfig
from cavalcade.core.errors import RunError, TrainingError
from cavalcade.runs import checkpoint
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import open_run
from cavalcade.runs.training import Training

from ..cli.helpers import without_notices
from ..processes import Process, command, start
from .helpers import SMALL, SMALL_CONFIG, left_behind, train


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run that was never interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    assert train(path).finished
    return path


@pytest.fixture
def copy(whole, tmp_path):
    """The same, to be tampered with: as it was at its third checkpoint."""
    path = tmp_path / "copy"
    shutil.copytree(whole, path)
    shutil.rmtree(path / "checkpoints" / "00000040")
    return path


def test_what_a_run_leaves(whole):
    assert [path.name for path in checkpoints(whole / "checkpoints")] == ["00000020", "00000030", "00000040"]
    rows = [json.loads(row) for row in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == list(range(1, 41))
    assert rows[-1]["steps"] == 40 * 250
    assert set(rows[0]) >= {"return", "policy_loss", "value_loss", "entropy", "kl", "grad_norm", "seconds"}
    episodes = (whole / "episodes.csv").read_text().splitlines()
    assert episodes[0] == "update,policy,environment,kind,return,length"
    assert len(episodes) == 101
    assert episodes[1].startswith("4,0,0,bline,-")
    assert json.loads((whole / "meta.json").read_text())["engine"] == "cpu"
    assert open_run(whole).threads() == 1


@pytest.mark.parametrize("stop_at", [1, 10, 17, 39])
def test_a_stopped_run_ends_as_if_it_had_not_been(whole, tmp_path, stop_at):
    outcome = train(tmp_path / "run", stop_at=stop_at)
    assert (outcome.finished, outcome.signal) == (False, signal.SIGTERM)
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1].name == f"{stop_at:08d}"
    assert train(tmp_path / "run", resume=True).finished
    assert left_behind(tmp_path / "run") == left_behind(whole)


@pytest.mark.parametrize("options", [{"engine": "torch"}, {"engine": "torch", "replay": 1}, {"dedup": "off"}])
def test_so_does_one_of_another_engine(tmp_path, options):
    config = replace(
        SMALL_CONFIG, policies=2, ppo=replace(SMALL_CONFIG.ppo, normalise_observations=True, minibatches=2, **options)
    )
    train(tmp_path / "whole", config)
    train(tmp_path / "run", config, stop_at=13)
    train(tmp_path / "run", resume=True)
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


def test_one_killed_before_its_first_checkpoint_begins_again(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert train(tmp_path / "run", resume=True).finished
    assert left_behind(tmp_path / "run") == left_behind(whole)


def test_a_finished_run_resumed_stays_as_it_is(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    outcome = train(tmp_path / "run", resume=True)
    assert (outcome.finished, outcome.steps) == (True, 0)
    assert left_behind(tmp_path / "run") == left_behind(whole)


LONG = [*SMALL, "--episodes", "6000", "--checkpoint-every", "50", "--quiet"]  # 2,400 updates


def test_kill_at_random_moments(tmp_path):
    """kill -9 again and again; in the end the run is as if nothing had happened."""
    assert command(*LONG, "--run", str(tmp_path / "whole")).returncode == 0
    run, rng, kills = tmp_path / "run", random.Random(0), 0
    arguments = [*LONG, "--run", str(run)]
    while kills < 2:  # once from the beginning, once resumed
        process = start(*arguments)
        known = len(checkpoints(run / "checkpoints")) and checkpoints(run / "checkpoints")[-1].name
        while process.poll() is None and not _newer(run, known):
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        assert process.wait().returncode in (0, -signal.SIGKILL)
        arguments = ["train", "--resume", str(run), "--quiet"]
        if _finished(run):
            break
    assert kills == 2
    assert command(*arguments).returncode == 0
    assert left_behind(run) == left_behind(tmp_path / "whole")


def _newer(run, known):
    found = checkpoints(run / "checkpoints")
    return bool(found) and found[-1].name != known


def _finished(run):
    found = checkpoints(run / "checkpoints")
    return bool(found) and int(found[-1].name) == 2400


PLACES = {
    "write": (checkpoint, "save_file"), "hash": (checkpoint, "_hash"), "flush": (checkpoint, "to_disk"),
    "rename": (checkpoint.Path, "rename"), "prune": (checkpoint, "checkpoints"),
}  # fmt: skip


def die_at(place, *args):
    """A command that is killed the third time it comes to a place."""
    module, name = PLACES[place]
    real, count = getattr(module, name), 0

    def dying(*args, **kwargs):
        nonlocal count
        count += 1
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)

    setattr(module, name, dying)
    main(list(args))


@pytest.mark.parametrize("place", PLACES)
def test_kill_in_the_midst_of_writing_a_checkpoint(whole, tmp_path, place):
    run = tmp_path / "run"
    done = Process(die_at, place, *SMALL, "--run", str(run), "--quiet").wait()
    assert done.returncode == -signal.SIGKILL
    assert train(run, resume=True).finished
    assert left_behind(run) == left_behind(whole)
    assert not list((run / "checkpoints").glob(".*"))


def test_a_thread_trains_like_the_main_one(whole, tmp_path):
    """Ray Tune trains in one; Python has signals for the main thread only."""
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, tmp_path / "run").result().finished
    assert signal.getsignal(signal.SIGTERM) is before
    assert left_behind(tmp_path / "run") == left_behind(whole)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_cleanly(tmp_path, number):
    run = tmp_path / "run"
    process = start(*LONG[:-1], "--run", run)
    while not checkpoints(run / "checkpoints"):
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(number)
    status, out, _ = process.wait()
    assert status == 128 + number
    update = int(checkpoints(run / "checkpoints")[-1].name)
    assert f"stopped at update {update}; resume with: cavalcade train --resume {run}" in out
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["update"] == update  # all logs are there


def on_a_small_disk(*args):
    """A command whose files may grow to 64 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))
    main(list(args))


def test_a_full_disk(tmp_path):
    """Files may grow to 64 kB, then writing fails; with room again the run goes on as if nothing had happened."""
    run = tmp_path / "run"
    arguments = [*SMALL, "--episodes", "1000", "--quiet"]
    assert command(*arguments, "--run", str(tmp_path / "whole")).returncode == 0  # compiles, too
    done = Process(on_a_small_disk, *arguments, "--run", str(run)).wait()
    assert done.returncode == 2
    said = without_notices(done.stderr)
    assert "cannot be written" in said
    assert said.count("\n") == 1
    assert command("train", "--resume", str(run), "--quiet").returncode == 0
    assert left_behind(run) == left_behind(tmp_path / "whole")


def test_a_changed_configuration_is_refused(copy):
    file = copy / "config.yaml"
    before, logs = file.read_text(), (copy / "metrics.jsonl").read_bytes()
    file.write_text(before.replace("hidden:\n  - 16", "hidden:\n  - 32").replace("seed: 0", "seed: 1"))
    said = r"was changed after 00000030 was written: seed 0 before, 1 now; ppo.hidden \(16,\) before, \(32,\) now;"
    with pytest.raises(RunError, match=said):
        train(copy, resume=True)
    assert (copy / "metrics.jsonl").read_bytes() == logs
    file.write_text(before.replace("keep_checkpoints: 3", "keep_checkpoints: 1"))
    assert train(copy, resume=True).finished
    assert len(checkpoints(copy / "checkpoints")) == 1


def test_a_configuration_that_was_cut_short_is_refused(copy):
    """At the end of a line it is still YAML; what is missing must not become a default."""
    file, logs = copy / "config.yaml", (copy / "metrics.jsonl").read_bytes()
    lines = file.read_text().splitlines(keepends=True)
    last = lines[-1].partition(":")[0].strip()
    file.write_text("".join(lines[:-1]))
    with pytest.raises(RunError, match=rf"config.yaml has lost settings that 00000030 has: .*{last}"):
        train(copy, resume=True)
    assert (copy / "metrics.jsonl").read_bytes() == logs


def test_a_log_that_was_cut_short_is_noticed_before_anything_is_written(copy):
    log = copy / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:100])  # the checkpoint says more
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    run = open_run(copy)
    with run.locked(), pytest.raises(RunError, match="the log was truncated"):
        Training(run, replace(run.config(), keep_checkpoints=1), resume=True, quiet=True)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_damaged_checkpoint_is_refused_and_the_one_before_does(copy, whole):
    newest = copy / "checkpoints" / "00000030"
    content = bytearray((newest / "policy.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "policy.safetensors").write_bytes(content)
    with pytest.raises(RunError, match=r"00000030/policy.safetensors is damaged"):
        train(copy, resume=True)
    shutil.rmtree(newest)
    assert train(copy, resume=True).finished
    assert left_behind(copy) == left_behind(whole)


def test_a_checkpoint_of_another_network_is_refused(copy, tmp_path):
    other = replace(SMALL_CONFIG, ppo=replace(SMALL_CONFIG.ppo, hidden=(8,)))
    train(tmp_path / "other", other, stop_at=2)
    shutil.copytree(tmp_path / "other" / "checkpoints" / "00000002", copy / "checkpoints" / "00000035")
    with pytest.raises(RunError, match=r"ppo.hidden"):
        train(copy, resume=True)


def test_not_a_number_stops_the_run_and_keeps_its_checkpoints(tmp_path):
    config = replace(SMALL_CONFIG, ppo=PPOConfig(num_envs=10, rollout_steps=25, hidden=(16,), schedule="constant"))
    train(tmp_path, config, stop_at=15)
    run = open_run(tmp_path)
    from cavalcade.runs.training import Training

    with run.locked():
        training = Training(run, run.config(), resume=True, quiet=True)
        training.engine.state.weights[0, 3] = torch.nan
        with pytest.raises(
            TrainingError, match=r"of policy 0 is nan at update 16; start again with a lower learning rate"
        ):
            training.train()
    assert checkpoints(tmp_path / "checkpoints")[-1].name == "00000015"
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["update"] == 15
    assert train(tmp_path, resume=True).finished


def test_games_of_a_resumed_run_go_on_in_the_middle(tmp_path):
    """Episodes are 100 steps, updates 25: the checkpoint falls into the midst of games."""
    train(tmp_path, stop_at=2)
    with np.load(tmp_path / "checkpoints" / "00000002" / "state.npz") as archive:
        assert (archive["step"] == 50).all()


def test_a_second_process_is_kept_out(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    with open_run(tmp_path / "run").locked():
        done = command("train", "--resume", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "is in use by another process" in done.stderr
    assert left_behind(tmp_path / "run") == left_behind(whole)


def test_threads_are_those_of_the_beginning(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    monkeypatch.setattr("cavalcade.targets.population.choose_threads", lambda: pytest.fail("measured again"))
    used = []
    monkeypatch.setattr("cavalcade.targets.population.use_threads", used.append)
    train(tmp_path / "run", resume=True)
    assert set(used) == {1}


def test_paths_are_relative_to_nothing(whole, tmp_path, monkeypatch):
    """A run that was moved goes on where it is now."""
    shutil.copytree(whole, tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved" / "checkpoints" / "00000040")
    monkeypatch.chdir(tmp_path)
    assert train(Path("moved"), resume=True).finished
    assert left_behind(tmp_path / "moved") == left_behind(whole)
