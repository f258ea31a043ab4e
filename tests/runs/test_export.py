"""ONNX of every kind of policy is the same policy."""

import dataclasses
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
from cavalcade.runs.checkpoint import load_checkpoint
from cavalcade.runs.directory import checkpoint_in
from cavalcade.runs.export import check_onnx, export_onnx, interface
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.targets.mettagrid.policy import RecurrentPolicy
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
    np.testing.assert_allclose(value, saved.evaluate(observation).value, rtol=1e-5)
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


def with_tokens(encoder, core):
    """A recurrent policy on tokens with random weights."""
    layout = TokenLayout(7, 9, ("tag", "hp", "agent_id"), (1.0, 255.0, 24.0), 5, 20)
    torch.manual_seed(0)
    policy = TokenPolicy(layout, 6, encoder=encoder, core=core, width=TokenPolicyConfig(width=32).width)
    with torch.no_grad():
        policy.actor.weight *= 100  # so that actions differ
    return RecurrentPolicy(Path("tokens"), MettagridConfig(), 0, policy, 0.5, layout.features, layout.tags)


@pytest.mark.parametrize("core", ["lstm", "gru", "none"])
@pytest.mark.parametrize("encoder", ["bag", "conv", "perceiver"])
def test_recurrent_policies_carry_their_memory(encoder, core, tmp_path):
    saved, file = with_tokens(encoder, core), tmp_path / "p.onnx"
    export_onnx(saved, 0, file)
    assert check_onnx(saved, 0, file) < 1e-4
    memory = {"lstm": ["hidden", "cell"], "gru": ["hidden"], "none": []}[core]
    inputs = [x.name for x in session(file).get_inputs()]
    assert inputs == ["observation", "action_mask", *memory]
    assert [x.name for x in session(file).get_outputs()][3:] == [f"next_{name}" for name in memory]
    assert "observation (B, 20, 3) uint8, action_mask (B, 6) bool" in interface(file)


def test_the_check_finds_another_policy(tmp_path):
    one, other = with_tokens("bag", "lstm"), with_tokens("bag", "lstm")
    with torch.no_grad():
        other.policy.core.weight_hh_l0 += 0.1  # pyright: ignore
    export_onnx(one, 0, tmp_path / "p.onnx")
    assert check_onnx(other, 0, tmp_path / "p.onnx") > 1e-3


def trained_on_rows(tmp_path, target, **settings):
    cavalcade.train(target, run=tmp_path / "run", progress=False, threads=1, **settings)
    saved, file = cavalcade.load_policy(tmp_path / "run"), tmp_path / "p.onnx"
    export_onnx(saved, 0, file)
    assert check_onnx(saved, 0, file) < 1e-4
    return saved, file


@pytest.mark.parametrize("frames", [1, 2])
def test_images(tmp_path, frames):
    """Pixels go in as bytes; actions and values are those of the policy, whatever the batch."""
    small = {"num_envs": 4, "rollout_steps": 8, "minibatches": 2, "backend": "serial", "steps": 32}
    saved, file = trained_on_rows(tmp_path, "gym:cavalcade/Catch-v0", frame_stack=frames, **small)
    size = saved.spec.image.size
    assert f"inputs observation (B, {size}) uint8, action_mask (B, 3) bool" in interface(file)
    x, mask = np.random.default_rng(0).integers(0, 256, (5, size), np.uint8), np.ones((5, 3), np.bool_)
    log_prob, value, action = session(file).run(None, {"observation": x, "action_mask": mask})
    shown = saved.evaluate(x)
    np.testing.assert_allclose(np.exp(log_prob), shown.probabilities, atol=1e-5)
    np.testing.assert_allclose(value, shown.value, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(action, saved(x))


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_memory_on_cage2(tmp_path, memory, monkeypatch):
    """A game played by the graph, which passes its memory on, is the game of the policy; orders are kept."""
    small = {"num_envs": 8, "rollout_steps": 20, "minibatches": 1, "horizon": 20, "episodes": 8}
    order = {"order": "user>enterprise>defender>op_server>op_host", "enforce": "mask"} if memory == "gru" else {}
    saved, file = trained_on_rows(tmp_path, "cage2", memory=memory, learning_rate=0.05, **small, **order)
    graph, env = session(file), cavalcade.make_env("cage2", num_envs=3, horizon=20)
    names = [x.name for x in graph.get_inputs()][2:]
    assert names == {"lstm": ["hidden", "cell"], "gru": ["hidden"]}[memory]
    held = {name: np.zeros((3, 64), np.float32) for name in names}
    runner = saved.runner(0)
    for _ in range(15):
        seen = {"observation": env.buffers.observation.astype(np.float32), "action_mask": env.buffers.action_mask}
        outputs = dict(zip([x.name for x in graph.get_outputs()], graph.run(None, seen | held), strict=True))
        actions = runner(env)
        np.testing.assert_array_equal(outputs["action"], actions)
        held = {name: outputs[f"next_{name}"] for name in names}
        env.step(actions)
    env.close()


def test_memory_with_continuous_actions(tmp_path):
    small = {key: value for key, value in SMALL.items() if key not in ("threads", "progress")}
    saved, file = trained_on_rows(tmp_path, "gym:Pendulum-v1", memory="lstm", steps=64, **small)
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    zeros = {name: np.zeros((50, 8), np.float32) for name in ("hidden", "cell")}
    with torch.no_grad():
        saved.network.actor.weight *= 1000  # beyond the bounds
    export_onnx(saved, 0, file)
    action = session(file).run(["action"], {"observation": x, **zeros})[0]
    np.testing.assert_allclose(action, saved(x), atol=1e-4)
    assert np.abs(action).max() == 2


def test_custom_networks_do_not_export(tmp_path):
    cavalcade.train("gym:CartPole-v1", run=tmp_path / "run", steps=64, network=Custom, **SMALL | {"hidden": (64, 64)})
    saved = cavalcade.load_policy(tmp_path / "run", network=Custom)
    with pytest.raises(ConfigError, match=r"custom network; export it with torch\.onnx"):
        export_onnx(saved, 0, Path("x"))


class Custom(torch.nn.Module):
    def __init__(self, observation, outputs):
        super().__init__()
        self.layer = torch.nn.Linear(observation, outputs + 1)

    def forward(self, x):
        y = self.layer(x)
        return y[:, :-1], y[:, -1]


def test_values_are_in_the_scale_of_rewards(tmp_path):
    """Not in that of training, where rewards are divided by the standard deviation of returns."""
    cavalcade.train("gym:Pendulum-v1", run=tmp_path / "run", steps=640, **SMALL)
    saved = cavalcade.load_policy(tmp_path / "run")
    plain = dataclasses.replace(saved, reward_scale=np.ones(1))
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    learner = load_checkpoint(checkpoint_in(tmp_path / "run")).snapshot.learner
    deviation = float((learner["return_square"] / learner["return_count"]).sqrt())
    assert deviation > 2
    np.testing.assert_allclose(saved.evaluate(x).value, plain.evaluate(x).value * deviation, rtol=1e-5)
    export_onnx(saved, 0, tmp_path / "p.onnx")
    value = session(tmp_path / "p.onnx").run(["value"], {"observation": x})[0]
    np.testing.assert_allclose(value, saved.evaluate(x).value, rtol=1e-4)
