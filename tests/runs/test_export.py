"""ONNX of every kind of policy is the same policy."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import cavalcade
from cavalcade.config.recurrent import TokenPolicyConfig
from cavalcade.core.errors import ConfigError
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.policy.tokens import TokenLayout
from cavalcade.runs.export import check_onnx, export_onnx, interface
from cavalcade.vector.actions import ActionLayout

from ..cli.helpers import run

SMALL = {"num_envs": 4, "rollout_steps": 16, "hidden": (8,), "backend": "serial", "threads": 1, "progress": False}


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_continuous_actions_are_scaled_and_clipped_as_the_policy_acts(tmp_path, capsys):
    """Pendulum takes −2 … 2; policies act in −1 … 1."""
    cavalcade.train("gym:Pendulum-v1", run=tmp_path / "run", steps=128, learning_rate=0.5, **SMALL)
    status, out, err = run(capsys, "export", tmp_path / "run", "--onnx", tmp_path / "p.onnx")
    assert status == 0, err
    assert "inputs observation (B, 3) float32; outputs mean (B, 1) float32, value (B) float32, action (B, 1)" in out
    saved = cavalcade.load_policy(tmp_path / "run")
    env = cavalcade.make_env("gym:Pendulum-v1", num_envs=64, backend="serial")
    observation = env.buffers.observation
    mean, value, action = session(tmp_path / "p.onnx").run(None, {"observation": observation})
    np.testing.assert_allclose(mean, saved.runner(0)(env), atol=1e-5)
    np.testing.assert_allclose(value, saved.evaluate(observation).value, atol=1e-5)
    np.testing.assert_allclose(action, env.source.shapes.actions.checked(saved.runner(0)(env), 64), atol=1e-5)
    np.testing.assert_allclose(action, saved(observation), atol=1e-5)  # what the policy returns when it is called
    assert np.abs(action).max() > 1
    env.close()


def test_bounds_on_one_side_only(monkeypatch, tmp_path):
    """A half-open Box is clipped but not scaled."""
    from gymnasium.spaces import Box

    cavalcade.train("gym:Pendulum-v1", run=tmp_path / "run", steps=64, **SMALL)
    saved = cavalcade.load_policy(tmp_path / "run")
    layout = ActionLayout(Box(np.array([0.01], np.float32), np.array([np.inf], np.float32)), "half")
    monkeypatch.setattr("cavalcade.targets.gym.GymTarget.action_layout", lambda *_: layout)
    export_onnx(saved, 0, tmp_path / "p.onnx")
    assert check_onnx(saved, 0, tmp_path / "p.onnx") < 1e-5
    observation = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    mean, _, action = session(tmp_path / "p.onnx").run(None, {"observation": observation})
    np.testing.assert_array_equal(action, np.maximum(mean, np.float32(0.01)))
    assert (mean < 0.01).any()


def test_several_discrete_actions(tmp_path):
    (tmp_path / "parts.py").write_text(
        "import gymnasium, numpy as np\n"
        "from gymnasium.spaces import Box, MultiDiscrete\n"
        "class Parts(gymnasium.Env):\n"
        "    observation_space, action_space = Box(-1, 1, (3,)), MultiDiscrete([3, 2, 4])\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}\n"
        "    def step(self, action):\n"
        "        return self.reset()[0], float(action[0]), False, False, {}\n"
        "gymnasium.register('Parts-v0', entry_point=Parts, max_episode_steps=10)\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        cavalcade.train("gym:parts:Parts-v0", run=tmp_path / "run", steps=640, learning_rate=0.1, **SMALL)
        env = cavalcade.make_env("gym:parts:Parts-v0", num_envs=20, backend="serial")
    finally:
        sys.path.remove(str(tmp_path))
    saved = cavalcade.load_policy(tmp_path / "run")
    export_onnx(saved, 0, tmp_path / "p.onnx")
    assert check_onnx(saved, 0, tmp_path / "p.onnx") < 1e-5
    inputs = {"observation": env.buffers.observation, "action_mask": np.ones((20, 9), np.bool_)}
    np.testing.assert_array_equal(session(tmp_path / "p.onnx").run(["action"], inputs)[0], saved.runner(0)(env))
    env.close()


class Recurrent:
    """A recurrent policy with random weights, as a target loads one."""

    path, order = "recurrent", ""

    def __init__(self, encoder, core):
        layout = TokenLayout(7, 9, ("tag", "hp", "agent_id"), (1.0, 255.0, 24.0), 5, 20)
        torch.manual_seed(0)
        self.policy = TokenPolicy(layout, 6, encoder=encoder, core=core, width=TokenPolicyConfig(width=32).width)
        with torch.no_grad():
            self.policy.actor.weight *= 100  # so that actions differ


@pytest.mark.parametrize("core", ["lstm", "gru", "none"])
@pytest.mark.parametrize("encoder", ["bag", "conv", "perceiver"])
def test_recurrent_policies_carry_their_memory(encoder, core, tmp_path):
    saved, file = Recurrent(encoder, core), tmp_path / "p.onnx"
    export_onnx(saved, 0, file)
    assert check_onnx(saved, 0, file) < 1e-4
    memory = {"lstm": ["hidden", "cell"], "gru": ["hidden"], "none": []}[core]
    inputs = [x.name for x in session(file).get_inputs()]
    assert inputs == ["observation", "action_mask", *memory]
    assert [x.name for x in session(file).get_outputs()][3:] == [f"next_{name}" for name in memory]
    assert "observation (B, 20, 3) uint8, action_mask (B, 6) bool" in interface(file)


def test_the_check_finds_another_policy(tmp_path):
    one, other = Recurrent("bag", "lstm"), Recurrent("bag", "lstm")
    with torch.no_grad():
        other.policy.core.weight_hh_l0 += 0.1  # pyright: ignore
    export_onnx(one, 0, tmp_path / "p.onnx")
    assert check_onnx(other, 0, tmp_path / "p.onnx") > 1e-3


def test_what_is_no_policy():
    found = Recurrent("bag", "none")
    found.policy = None
    with pytest.raises(ConfigError, match="only those of mettagrid export"):
        export_onnx(found, 0, Path("x"))
