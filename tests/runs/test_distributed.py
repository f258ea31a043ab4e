"""Trainings over several ranks: the same as one process with all the environments; nothing hangs, nothing is lost."""

import json
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from cavalcade.cli import main
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.errors import ConfigError
from cavalcade.ppo.distributed import Ranks
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.history import read_history
from cavalcade.targets import target_named
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.gym import GymConfig
from cavalcade.targets.mettagrid.config import MettagridConfig

from ..processes import PATIENCE, start

CAGE2 = "cage2 --num-envs 12 --rollout-steps 50 --minibatches 4 --hidden 16 --device cpu --threads 1"
METTAGRID = (
    "mettagrid --env-options agents=4 --num-envs 4 --batch-size 256 --minibatch-size 64 --bptt-horizon 8 --width 16 "
    "--backend serial --device cpu --threads 1"
)
GYM = "gym:CartPole-v1 --num-envs 12 --rollout-steps 16 --minibatches 3 --hidden 16 --backend serial --threads 1"


def launch(args, size):
    """A training over some ranks: a process each, with the variables that torchrun sets."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables = [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in range(size)]
    return [start("train", *args, env={name: str(x) for name, x in found.items()}) for found in variables]


def wait_for(condition, ranks):
    """Waits until something has happened in a training; its processes may get little of the machine."""
    while not condition():
        assert all(rank.poll() is None for rank in ranks), [rank.wait() for rank in ranks]
        time.sleep(0.1)


def train(args, ranks):
    """A training from beginning to end; what its first rank printed."""
    ends = [rank.wait() for rank in launch(args, ranks)]
    assert all(end.returncode == 0 for end in ends), ends
    return ends[0].stdout


def torchrun(args, ranks):
    """The same, started as a user does."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    command += ["-m", "--", "cavalcade", "train", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-3000:]


def alone(args):
    with pytest.raises(SystemExit) as end:
        main(["train", *map(str, args)])
    assert end.value.code == 0


def newest(path):
    return checkpoints(path / "checkpoints")[-1]


def weights(path):
    return load_file(newest(path) / "policy.safetensors")


def rows(path):
    """The metrics so far; a line that is being written is left out."""
    lines = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def assert_same(one, other):
    """The same training but for rounding: after a few updates, which is all that chance leaves alike."""
    for name, mine in weights(one).items():
        np.testing.assert_allclose(mine, weights(other)[name], atol=2e-4, err_msg=name)
    for a, b in zip(rows(one), rows(other), strict=True):
        assert (a["update"], a["steps"], a["episodes"], a["return"]) == (
            b["update"], b["steps"], b["episodes"], b["return"],
        )  # fmt: skip
        for name in ("policy_loss", "value_loss", "entropy", "kl", "grad_norm"):
            np.testing.assert_allclose(a[name], b[name], rtol=2e-3, atol=2e-5, err_msg=name)
    ours, theirs = (sorted((path / "episodes.csv").read_text().splitlines()) for path in (one, other))
    assert ours == theirs


@pytest.mark.parametrize(
    "args",
    [
        f"{CAGE2} --episodes 24 --horizon 100",
        f"{CAGE2} --episodes 24 --engine torch --normalise-observations --grad-accum 3 --value-clip 0.2",
        f"{GYM} --steps 768 --normalise-observations",
        f"{METTAGRID} --steps 768 --vtrace",
    ],
    ids=["cpu", "torch", "hosted", "memory"],
)
def test_two_ranks_learn_as_one_process_does(args, tmp_path):
    alone([*args.split(), "--quiet", "--run", tmp_path / "one"])
    begin = torchrun if args.startswith(METTAGRID) else train
    begin([*args.split(), "--quiet", "--run", tmp_path / "two"], ranks=2)
    assert_same(tmp_path / "one", tmp_path / "two")


def test_a_run_goes_on_on_another_number_of_ranks(tmp_path):
    alone([*CAGE2.split(), "--quiet", "--episodes", 24, "--run", tmp_path / "one"])
    often = ["--checkpoint-every", 1, "--keep-checkpoints", 9, "--quiet"]
    train([*CAGE2.split(), "--episodes", 24, *often, "--run", tmp_path / "a"], ranks=2)
    for late in checkpoints(tmp_path / "a" / "checkpoints")[1:]:
        for file in late.iterdir():
            file.unlink()
        late.rmdir()
    out = train(["--resume", tmp_path / "a"], ranks=3)
    assert "3 ranks, 4 environments and 1 threads each" in out
    assert "the run began with 2 ranks and now has 3; results differ only by the order of summation" in out
    assert_same(tmp_path / "one", tmp_path / "a")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_dead_rank_ends_the_job_without_a_loss(tmp_path, victim):
    path = tmp_path / "a"
    args = [*CAGE2.split(), "--episodes", 10**6, "--checkpoint-every", 50, "--run", path]
    ranks = launch(args, 2)
    wait_for(lambda: checkpoints(path / "checkpoints"), ranks)
    ranks[victim].send_signal(signal.SIGKILL)
    assert ranks[victim].wait().returncode == -signal.SIGKILL
    status, _, err = ranks[1 - victim].wait()
    assert status == 2
    assert "another rank is gone" in err
    before = int(newest(path).name)
    if victim:  # the first wrote where all of them stood
        assert f"resume with: cavalcade train --resume {path}" in err
        assert before % 50 or before == rows(path)[-1]["update"]
    ranks = launch(["--resume", path], 2)
    wait_for(lambda: any(row["update"] > before for row in rows(path)[-1:]), ranks)
    ranks[1].send_signal(signal.SIGTERM)  # ranks stop together
    ends = [rank.wait() for rank in ranks]
    assert not any("another rank is gone" in end.stderr for end in ends)
    assert "stopped at update" in ends[0].stdout
    updates = [row["update"] for row in rows(path)]
    assert updates == list(range(1, len(updates) + 1))
    assert updates[-1] > before


def test_what_ranks_cannot_share_is_refused(tmp_path):
    for rank in launch(["cage2", "--num-envs", 13, "--minibatches", 1, "--run", tmp_path / "a"], 2):
        end = rank.wait()
        assert end.returncode == 2
        assert "num_envs is 13; it must be a multiple of the 2 ranks" in end.stderr


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Cage2Config(policies=2), "policies is 2 on several ranks"),
        (Cage2Config(ppo=PPOConfig(engine="torch", replay=1)), "replay is 1 on several ranks"),
    ],
    ids=["policies", "replay"],
)
def test_so_are_settings_that_they_do_not_support(config, words):
    with pytest.raises(ConfigError, match=words):
        target_named("cage2").share(config, Ranks(0, 2))


@pytest.mark.parametrize(("target", "kind"), [("mettagrid", MettagridConfig), ("gym:CartPole-v1", GymConfig)])
def test_ranks_learn_in_step(target, kind):
    with pytest.raises(ConfigError, match="staleness is 2 on several ranks"):
        target_named(target).share(kind(target=target, host=HostConfig(staleness=2)), Ranks(0, 2))


def test_shares_of_environments():
    assert Ranks(1, 4).share(12, "num_envs") == slice(3, 6)
    with pytest.raises(ConfigError, match="multiple of the 5 ranks"):
        Ranks(1, 5).share(12, "num_envs")


def test_minibatches_of_ranks_are_those_of_one_process():
    keys, updates = np.array([7], np.uint64), np.array([3])
    (order,), bounds = Ranks().minibatches(keys, updates, 1, 5, 12, 4)
    parts = [Ranks(rank, 3).minibatches(keys, updates, 1, 5, 4, 4) for rank in range(3)]
    for m in range(4):
        whole = set(order[bounds[m] : bounds[m + 1]].tolist())
        found = set()
        for rank, ((mine,), cut) in enumerate(parts):
            t, e = np.divmod(mine[cut[m] : cut[m + 1]], 4)
            found |= set((t * 12 + 4 * rank + e).tolist())
        assert found == whole


def test_ranks_start_from_trained_weights_and_resume_with_other_settings(tmp_path):
    """As one process does."""
    small = CAGE2.split()
    alone([*small, "--episodes", "12", "--run", tmp_path / "source", "--quiet"])
    init = ["--seed", "5", "--init", tmp_path / "source", "--episodes", "12", "--quiet"]
    more = ["--episodes", "24", "--learning-rate", "1e-3", "--quiet"]
    alone([*small, *init, "--run", tmp_path / "one"])
    alone(["--resume", tmp_path / "one", *more])
    train([*small, *init, "--run", tmp_path / "two", "--keep-checkpoints", "9"], ranks=2)
    first = load_file(checkpoints(tmp_path / "two" / "checkpoints")[0] / "policy.safetensors")
    for name, mine in weights(tmp_path / "source").items():
        np.testing.assert_array_equal(first[name], mine)
    train(["--resume", tmp_path / "two", *more], ranks=2)
    assert_same(tmp_path / "one", tmp_path / "two")
    events = read_history(tmp_path / "two")
    assert [sorted(event) for event in events] == [["date", "init", "update"], ["changes", "date", "update"]]
    assert events[1]["changes"] == {"ppo.learning_rate": [0.002, 0.001], "episodes": [12, 24]}
