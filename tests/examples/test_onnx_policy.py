"""The example that plays an exported policy without Cavalcade: its mask, its memory and its actions are the same."""

import ast
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.runs.export import export_onnx
from cavalcade.runs.policies import load_policy

from ..runs.helpers import SMALL_CONFIG, train
from .test_examples import EXAMPLES, load_example

SCRIPT = EXAMPLES / "onnx_policy.py"


@pytest.fixture(scope="module", params=[(), ("scans",)], ids=["plain", "scans"])
def exported(request, tmp_path_factory):
    """A policy, its graph and the task that it observes."""
    folder, task = tmp_path_factory.mktemp("exported"), Cage2Task(extras=request.param, red="meander")
    train(folder / "run", replace(SMALL_CONFIG, task=task), stop_at=30)
    saved = load_policy(folder / "run")
    export_onnx(saved, 0, folder / "policy.onnx")
    return saved, folder / "policy.onnx", task


def test_it_does_not_need_cavalcade():
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(SCRIPT.read_text()))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")])
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported == {"argparse", "numpy", "onnxruntime", "gymnasium"}


def test_its_mask_is_that_of_the_simulator_whatever_blue_does():
    """Random actions, mostly decoys and restores, allowed and not."""
    example, rng, n = load_example("onnx_policy"), np.random.default_rng(0), 12
    env = Cage2(n, red="meander", horizon=0)
    env.reset()
    blues, differ = [example.Blue() for _ in range(n)], 0
    for _ in range(120):
        expected = env.buffers.action_mask
        for blue, mask in zip(blues, expected, strict=True):
            np.testing.assert_array_equal(blue.mask(), mask)
        differ += len({mask.tobytes() for mask in expected}) > 1
        actions = rng.integers(example.FIRST_DECOY, example.ACTIONS, n)
        env.step(actions)
        for blue, action in zip(blues, actions.tolist(), strict=True):
            blue.acted(action)
    assert differ > 100


def test_it_plays_as_cavalcade_does(exported):
    """The same masks, observations and actions in whole games."""
    saved, file, task = exported
    example, n = load_example("onnx_policy"), 8
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    env, runner = Cage2(n, red="meander", stream="heldout", horizon=100, **task.shown), saved.runner(0)
    env.reset()
    policies = [example.Policy(session) for _ in range(n)]
    for _ in range(99):
        expected = runner(env)
        for i, policy in enumerate(policies):
            np.testing.assert_array_equal(policy.blue.mask(), env.buffers.action_mask[i])
            assert policy(env.buffers.observation[i, :52]) == expected[i]
            np.testing.assert_array_equal(
                np.concatenate([policy.blue.scanned, policy.blue.latest]) if task.extras else [],
                env.buffers.observation[i, 52:],
            )
        env.step(expected)


def test_it_runs(exported):
    _, file, _ = exported
    args = [sys.executable, str(SCRIPT), str(file), "--env", "cavalcade:cavalcade/Cage2-v0", "--games", "2"]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 games: mean return -" in done.stdout
