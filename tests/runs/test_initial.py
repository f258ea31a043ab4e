"""New runs from trained weights."""

import os
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import cavalcade
from cavalcade.cli import main
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2.truth import TRUTH_VALUES
from cavalcade.policy.mlp import MlpSpec
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.history import read_history
from cavalcade.runs.policies import load_policy
from cavalcade.targets import target_named

from ..cli.helpers import refused, run
from ..processes import Process
from .helpers import SMALL_CONFIG, left_behind, train

PPO = {"num_envs": 10, "rollout_steps": 25, "hidden": (16,), "threads": 1, "progress": False}
STATISTICS = [f"{what}_{part}" for what in ("observation", "return") for part in ("count", "mean", "square")]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Two policies with normalised observations, of the torch engine."""
    path = tmp_path_factory.mktemp("runs") / "source"
    ppo = replace(SMALL_CONFIG.ppo, normalise_observations=True, engine="torch")
    train(path, replace(SMALL_CONFIG, policies=2, ppo=ppo, episodes=20))
    return path


def initial(path):
    """Tensors of checkpoint 0."""
    return {n: load_file(path / "checkpoints" / "00000000" / f"{n}.safetensors") for n in ("policy", "optimizer")}


def begun(path, source, **settings):
    """The tensors with which a run begins from a source; it is stopped after its first update."""
    options = PPO | {"normalise_observations": True, "episodes": 20} | settings
    cavalcade.train("cage2", run=path, init=source, callbacks=[lambda _: True], **options)
    return initial(path)


@pytest.mark.parametrize("engine", ["cpu", "torch"])
def test_weights_and_statistics_are_taken_over_and_the_rest_is_fresh(source, tmp_path, engine):
    found = begun(tmp_path / "run", source, policies=2, engine=engine, red="meander", learning_rate=1e-4)
    newest = checkpoints(source / "checkpoints")[-1]
    for name, tensor in load_file(newest / "policy.safetensors").items():
        assert torch.equal(found["policy"][name], tensor), name
    theirs = load_file(newest / "optimizer.safetensors")
    for name in STATISTICS:
        assert torch.equal(found["optimizer"][name], theirs[name]), name
        assert theirs[name].any()
    for name in ("first_moment", "second_moment", "adam_steps", "counters", "return_sum", "episode_length"):
        assert not found["optimizer"][name].any(), name
    (event,) = read_history(tmp_path / "run")
    assert event["update"] == 0
    assert event["init"] == {"path": str(newest), "update": 8, "policies": "2 policies, one for each"}


def test_the_best_policy_for_all_if_the_numbers_differ(source, tmp_path, capsys):
    saved = load_policy(source)
    best = target_named("cage2").member(saved).index
    args = ["train", "cage2", "--init", source, "--normalise-observations", "--policies", "3", "--num-envs", "10"]
    args += ["--rollout-steps", "25", "--hidden", "16", "--episodes", "10", "--threads", "1", "--run", tmp_path / "run"]
    status, out, err = run(capsys, *args, "--checkpoint-every", "0")
    assert status == 0, err
    assert f"policy {best} of 2, the best in validation" in out
    found = begun(tmp_path / "again", source, policies=3)["policy"]
    theirs = load_file(checkpoints(source / "checkpoints")[-1] / "policy.safetensors")
    for name, tensor in found.items():
        assert torch.equal(tensor, theirs[name][[best] * 3]), name


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"hidden": (32,)}, r"whose policies have hidden \[16\]; this run has \[32\]"),
        ({"extras": ("scans",)}, r"whose policies have inputs 52; this run has 78"),
        ({"normalise_observations": False}, "whose policies have normalise_observations True; this run has False"),
    ],
)
def test_shapes_must_fit(source, tmp_path, option, said):
    with pytest.raises(ConfigError, match=said):
        begun(tmp_path / "run", source, **option)
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_bad_sources(source, tmp_path, capsys):
    args = ("train", "cage2", "--init", tmp_path, "--run", tmp_path / "r", "--quiet")
    assert "is neither a run" in refused(capsys, *args)
    with pytest.raises(RunError, match="already contains a run"):
        begun(source, source, policies=2)
    assert checkpoints(source / "checkpoints")[0].name != "00000000"


def test_a_run_killed_before_its_first_checkpoint_keeps_its_initial_weights(source, tmp_path):
    options = {"policies": 2, "normalise_observations": True, "episodes": 20, "checkpoint_every": 0}
    cavalcade.train("cage2", run=tmp_path / "whole", init=cavalcade.Run(source), **PPO, **options)
    begun(tmp_path / "run", source, **options)  # stopped after an update …
    for path in checkpoints(tmp_path / "run" / "checkpoints")[1:]:
        shutil.rmtree(path)  # … whose checkpoint was never written
    cavalcade.Run(tmp_path / "run").resume(progress=False)
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")


def die_at_its_beginning(*args):
    """A command that is killed before its run begins."""
    RunDirectory.begin = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    main(list(args))


def test_killed_before_it_began_it_leaves_nothing_that_another_run_would_take(source, tmp_path):
    args = ["train", "cage2", "--num-envs", "10", "--rollout-steps", "25", "--hidden", "16", "--episodes", "10"]
    args += ["--threads", "1", "--quiet", "--run", str(tmp_path / "run")]
    init = ["--init", str(source), "--policies", "2", "--normalise-observations"]
    done = Process(die_at_its_beginning, *args, *init).wait()
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "run" / "checkpoints" / "00000000").exists()
    cavalcade.train("cage2", run=tmp_path / "run", episodes=10, **PPO)
    assert not (tmp_path / "run" / "checkpoints" / "00000000").exists()
    assert read_history(tmp_path / "run") == []


@pytest.mark.parametrize("critic", ["observation", "true-state"])
def test_policy_files_are_initial_weights(tmp_path, capsys, critic):
    """Their critics too, unless they saw the true state: those are not in the file and begin anew."""
    path, file = tmp_path / "source", tmp_path / "one.safetensors"
    train(path, replace(SMALL_CONFIG, critic=critic, episodes=20))
    assert run(capsys, "export", path, "--file", file)[0] == 0
    options = {"normalise_observations": False, "critic": critic, "seed": 3}
    found = begun(tmp_path / "run", file, **options)
    theirs = load_file(checkpoints(path / "checkpoints")[-1] / "policy.safetensors")
    spec = MlpSpec(52 + TRUTH_VALUES, 145, (16,), critic_values=TRUTH_VALUES)
    fresh = spec.parameters(spec.initial_weights([3]))
    for name, tensor in found["policy"].items():
        anew = critic == "true-state" and name.startswith("critic")
        assert torch.equal(tensor, (fresh if anew else theirs)[name]), name
    (event,) = read_history(tmp_path / "run")
    said = "the critic begins anew" if critic == "true-state" else ""
    assert event["init"] == {"path": str(file), "update": 8, "policies": said}
    with pytest.raises(ConfigError, match=r"whose policies have hidden \[16\]; this run has \[32\]"):
        begun(tmp_path / "other", file, hidden=(32,), **options)


def test_models_are_initial_weights(tmp_path):
    begun(
        tmp_path / "run", "model:cage2-head", normalise_observations=False, critic="true-state", hidden=(64, 64),
        extras=("scans", "elapsed"), policies=2,
    )  # fmt: skip
    (event,) = read_history(tmp_path / "run")
    assert event["init"]["path"] == "model:cage2-head"
    assert event["init"]["policies"] == "one policy for all 2, the critic begins anew"


def test_a_gymnasium_policy_goes_on_elsewhere(tmp_path):
    options = {"num_envs": 4, "rollout_steps": 16, "hidden": (8,), "backend": "serial", "threads": 1, "progress": False}
    cavalcade.train("gym:CartPole-v1", run=tmp_path / "a", steps=640, **options)
    cavalcade.train("gym:CartPole-v1", run=tmp_path / "b", init=tmp_path / "a", steps=64, checkpoint_every=0, **options)
    with pytest.raises(ConfigError, match=r"whose policies have inputs 4; this run has 6"):
        cavalcade.train("gym:Acrobot-v1", run=tmp_path / "c", init=tmp_path / "a", steps=64, **options)
    assert read_history(tmp_path / "b")[0]["init"]["path"] == str(checkpoints(tmp_path / "a" / "checkpoints")[-1])
