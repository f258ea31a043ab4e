"""A policy in one file plays as in its run; bad files are refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import cavalcade
from cavalcade.core.errors import CavalcadeError, RunError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.runs.policies import load_policy, trained_on
from cavalcade.runs.policy_file import read_header

from ..cli.helpers import refused
from ..cli.helpers import run as command
from .helpers import SMALL_CONFIG, left_behind, train


def succeeds(capsys, *args) -> str:
    """What a command printed."""
    status, out, err = command(capsys, *args)
    assert status == 0, err
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two policies with every legal observation extra and normalised observations."""
    folder = tmp_path_factory.mktemp("policy")
    task = Cage2Task(extras=("scans", "decoys", "action", "elapsed"), red="meander")
    ppo = replace(SMALL_CONFIG.ppo, normalise_observations=True)
    train(folder / "run", replace(SMALL_CONFIG, task=task, ppo=ppo, policies=2, seed=5), stop_at=30)
    return folder / "run"


def test_a_policy_file_plays_as_its_run(run, tmp_path, capsys):
    file = tmp_path / "one.safetensors"
    succeeds(capsys, "export", run, "--file", file, "--member", 1)
    whole, one = load_policy(run), cavalcade.load_policy(file)
    assert one.policies == 1
    assert (one.config.policies, one.config.seed) == (1, 6)
    assert trained_on(file) == "cage2"
    env = Cage2(50, red="meander", **whole.config.task.shown)
    env.reset()
    other = whole.runner(0)
    differ = 0
    for _ in range(30):
        actions = one.runner()(env).copy()
        np.testing.assert_array_equal(actions, whole.runner(1)(env))
        differ += (actions != other(env)).any()
        env.step(actions)
    assert differ


def test_commands_take_policy_files(run, tmp_path, capsys):
    file = tmp_path / "one.safetensors"
    succeeds(capsys, "export", run, "--file", file, "--member", 0)
    args = ("--episodes", 20, "--cells", "bline-30", "--revisions", "head")
    scores = [succeeds(capsys, "evaluate", path, *args, *more) for path, more in ((file, ()), (run, ("--member", 0)))]
    assert scores[0].splitlines()[2:] == scores[1].splitlines()[2:]
    assert "is one file already" in refused(capsys, "export", file, "--file", tmp_path / "two.safetensors")


def test_damaged_and_foreign_files_are_refused(run, tmp_path, capsys):
    file = tmp_path / "one.safetensors"
    succeeds(capsys, "export", run, "--file", file, "--member", 0)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(RunError, match="cannot be read"):
        load_policy(file)
    file.write_bytes(content)
    tensors = load_file(file)
    save_file(tensors, file)
    with pytest.raises(RunError, match="is not a policy file"):
        load_policy(file)
    save_file(tensors, file, {"cavalcade": json.dumps({"format": 1})})
    with pytest.raises(RunError, match="cannot be read"):
        load_policy(file)
    assert "its header has no settings" in refused(capsys, "evaluate", file)
    save_file(tensors, file, {"cavalcade": "[]"})
    with pytest.raises(CavalcadeError):
        load_policy(file)
    file.write_bytes(content)
    header = read_header(file)
    del header["sha256"]  # as in files of earlier versions
    header["network"]["contest"] = header["network"].pop("context")  # a flipped bit in its name
    save_file(tensors, file, {"cavalcade": json.dumps(header)})
    assert "does not describe a policy (KeyError: 'context')" in refused(capsys, "evaluate", file)
    assert "nothing to write" in refused(capsys, "export", run)
    assert "must end with .safetensors" in refused(capsys, "export", run, "--file", tmp_path / "policy.bin")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.99])
def test_a_flipped_bit_is_found(run, tmp_path, capsys, place):
    file = tmp_path / "one.safetensors"
    succeeds(capsys, "export", run, "--file", file, "--member", 0)
    content = bytearray(file.read_bytes())
    first = 8 + int.from_bytes(content[:8], "little")  # byte of the tensors
    content[first + int(place * (len(content) - first))] ^= 1
    file.write_bytes(content)
    with pytest.raises(RunError, match="is damaged: its content does not match its hash"):
        load_policy(file)


def test_the_agent_for_cyborg_plays_as_the_policy(run, tmp_path, capsys):
    """Inputs, masks and actions of whole games, from Blue's table alone."""
    file = tmp_path / "blue_agent.py"
    succeeds(capsys, "export", run, "--agent", file, "--member", 1)
    scope: dict = {"__name__": "blue_agent"}
    exec(compile(file.read_text(), file, "exec"), scope)
    saved, n = load_policy(run), 6
    env, runner = Cage2(n, red="meander", horizon=40, **saved.config.task.shown), saved.runner(1)
    env.reset()
    agents = [scope["BlueAgent"]() for _ in range(n)]
    for t in range(80):
        if t == 40:
            for agent in agents:
                agent.end_episode()
        expected = runner(env).copy()
        for i, agent in enumerate(agents):
            np.testing.assert_array_equal(agent.knowledge.mask(), env.buffers.action_mask[i])
            assert agent.get_action(env.buffers.observation[i, :52]) == expected[i]
        env.step(expected)


def test_policies_that_an_agent_cannot_play_are_refused(tmp_path, capsys):
    train(tmp_path / "run", replace(SMALL_CONFIG, order="critical_first"), stop_at=2)
    assert "follows an order" in refused(capsys, "export", tmp_path / "run", "--agent", tmp_path / "agent.py")
    settings = {"num_envs": 8, "episodes": 8, "memory": "gru", "threads": 1, "progress": False}
    cavalcade.train("cage2", **settings, run=tmp_path / "gru")
    err = refused(capsys, "export", tmp_path / "gru", "--agent", tmp_path / "agent.py")
    assert "is not a feed-forward policy for CAGE-2" in err
    assert not (tmp_path / "agent.py").exists()


def test_a_policy_that_observes_a_belief_resumes_exactly_and_plays_in_the_simulator_only(tmp_path, capsys):
    config = replace(SMALL_CONFIG, task=Cage2Task(extras=("belief",)), episodes=20, checkpoint_every=2)
    train(tmp_path / "whole", config)
    train(tmp_path / "run", config, stop_at=3)
    assert train(tmp_path / "run", resume=True).finished
    assert left_behind(tmp_path / "run") == left_behind(tmp_path / "whole")
    assert "observes a belief" in refused(capsys, "export", tmp_path / "run", "--agent", tmp_path / "agent.py")
    args = ("evaluate", tmp_path / "run", "--episodes", 4, "--cells", "bline-30", "--revisions", "head")
    assert "total of 1 cell" in succeeds(capsys, *args)
    assert "only policies without that extra look ahead" in refused(capsys, *args, "--plan", 2)


def test_a_critic_of_the_true_state_stays_behind(tmp_path, capsys):
    config = replace(SMALL_CONFIG, critic="true-state", policies=2)
    train(tmp_path / "run", config, stop_at=5)
    file = tmp_path / "one.safetensors"
    succeeds(capsys, "export", tmp_path / "run", "--file", file, "--member", 1)
    tensors = load_file(file)
    assert not [name for name in tensors if "critic" in name]
    assert tensors["policy.actor.0.weight"].shape == (1, 52, 16)
    whole, one = load_policy(tmp_path / "run")[1], load_policy(file)
    observation = np.random.default_rng(0).integers(0, 2, (50, 52))
    np.testing.assert_array_equal(one.evaluate(observation).probabilities, whole.evaluate(observation).probabilities)
    assert np.isnan(one.evaluate(observation).value).all()
