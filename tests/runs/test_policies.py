"""Trained policies from disk, at play and as ONNX."""

import numpy as np
import onnxruntime
import pytest

from cavalcade.cli import main
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2 import Cage2
from cavalcade.runs.export import check_onnx, export_onnx
from cavalcade.runs.export_order import mask_words, masks_itself
from cavalcade.runs.policies import load_policy
from cavalcade.targets.cage2.shared import order_mask

from .helpers import SMALL_CONFIG, train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    from dataclasses import replace

    path = tmp_path_factory.mktemp("runs") / "two"
    train(path, replace(SMALL_CONFIG, policies=2, ppo=replace(SMALL_CONFIG.ppo, normalise_observations=True)))
    return path


def test_a_run_or_a_checkpoint_alone(run, tmp_path):
    import shutil

    newest = load_policy(run)
    assert (newest.update, newest.policies, newest.spec.hidden) == (40, 2, (16,))
    shutil.copytree(run / "checkpoints" / "00000030", tmp_path / "alone")
    alone = load_policy(tmp_path / "alone")
    assert alone.update == 30
    assert alone.config == newest.config


def test_a_player_acts_alone_as_among_others(run):
    saved = load_policy(run)
    env = Cage2(40, red="meander", stream="heldout")
    env.reset()
    together = saved.runner()(env)
    for p in range(2):
        half = env.clone(np.arange(20 * p, 20 * (p + 1)))
        assert (saved.runner(p)(half) == together[20 * p : 20 * (p + 1)]).all()
    with pytest.raises(ConfigError, match=r"policy is 2; .* has 2, numbered from 0"):
        saved.runner(2)


def test_greedy_takes_the_likeliest_and_sampled_draws_by_seed(run):
    saved = load_policy(run)
    env = Cage2(500)
    env.reset()
    greedy = saved.runner(0)(env)
    assert len(set(greedy.tolist())) == 1  # all see the same first observation
    one, again, other = (saved.runner(0, greedy=False, seed=s)(env) for s in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()
    assert len(set(one.tolist())) > 20


def test_what_is_no_policy(tmp_path, run):
    with pytest.raises(RunError, match="is neither a run"):
        load_policy(tmp_path)
    (tmp_path / "config.yaml").write_text((run / "config.yaml").read_text())
    with pytest.raises(RunError, match="has no checkpoint yet"):
        load_policy(tmp_path)


def test_onnx_is_the_same_policy(run, tmp_path, capsys):
    file = tmp_path / "policy.onnx"
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--onnx", str(file), "--member", "1"])
    assert not stop.value.code
    assert "largest difference from torch" in capsys.readouterr().out
    saved = load_policy(run)
    assert check_onnx(saved, 1, file) < 1e-4
    assert check_onnx(saved, 0, file) > 1e-3  # the other policy is another
    env = Cage2(300, red="meander", stream="heldout")
    env.reset()
    player, session = saved.runner(1), onnxruntime.InferenceSession(str(file))
    for _ in range(20):
        inputs = {"observation": env.buffers.observation.astype(np.float32), "action_mask": env.buffers.action_mask}
        actions = player(env)
        assert (np.asarray(session.run(["action"], inputs)[0]) == actions).mean() > 0.99  # near ties aside
        env.step(actions)


def test_onnx_to_nowhere(run):
    with pytest.raises(RunError, match="cannot be written"):
        export_onnx(load_policy(run), 0, run / "no" / "folder.onnx")


def test_a_policy_without_an_order_has_no_mask(run, tmp_path, capsys):
    saved = load_policy(run)
    assert (saved.order, saved.mask, masks_itself(saved)) == ("", None, False)
    with pytest.raises(SystemExit) as stop:
        main(["export", str(run), "--onnx", str(tmp_path / "policy.onnx")])
    assert not stop.value.code
    assert "order" not in capsys.readouterr().out.splitlines()[-1].replace(str(tmp_path), "")
    session = onnxruntime.InferenceSession(str(tmp_path / "policy.onnx"))
    inputs = {"observation": np.ones((1, 52), np.float32), "action_mask": np.ones((1, 145), bool)}
    assert (np.asarray(session.run(["log_probability"], inputs)[0]) > -1e20).all()


def test_a_policy_under_an_order_alone_as_among_others(run):
    """All policies of a run share the mask of its order."""
    from dataclasses import replace

    free = load_policy(run)
    saved = replace(free, order="reverse", mask=order_mask("reverse", free.config.workflow))
    assert masks_itself(saved)
    assert mask_words(saved).startswith("its mask is part of the graph")
    env, rng = Cage2(40, red="meander", stream="heldout"), np.random.default_rng(0)
    env.reset()
    bound = 0
    for _ in range(30):
        allowed = saved.mask(env)
        together = saved.runner()(env)
        assert allowed[np.arange(40), together].all()
        bound += (allowed != env.buffers.action_mask).any(axis=1).sum()
        for p in range(2):
            half = env.clone(np.arange(20 * p, 20 * (p + 1)))
            assert (saved.runner(p)(half) == together[20 * p : 20 * (p + 1)]).all()
        env.step(rng.integers(145, size=40))
    assert bound > 50
