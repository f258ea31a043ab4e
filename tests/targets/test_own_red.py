"""Training against a user-defined Red: resumed exactly, scored, refused where it cannot be."""

import importlib
import sys

import numpy as np
import pytest

import cavalcade
from cavalcade import api
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.scenario import OWN
from cavalcade.search.config import SearchConfig
from cavalcade.targets.cage2 import gpu
from cavalcade.targets.cage2.config import Cage2Config

MINE = """
from cavalcade.envs.cage2.own_red import b_line, meander, pick, rule
@rule
def mix(s, e, key):
    if s.step[e] == 0:
        s.memory[e, 0] = pick(key, 0, 0b11)
    if s.memory[e, 0] == 0:
        return b_line(s, e, key)
    return meander(s, e, key)
def plain(s, e, key):
    return 0, 0
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "reds_to_train_on.py").write_text(MINE)
    monkeypatch.delitem(sys.modules, "reds_to_train_on", raising=False)
    return "reds_to_train_on"


def test_a_resumed_run_equals_an_uninterrupted_one(mine, tmp_path):
    options = {
        "red": f"{mine}:mix", "num_envs": 10, "rollout_steps": 30, "hidden": (8,), "episodes": 36, "threads": 1,
        "progress": False,
    }  # fmt: skip
    whole = cavalcade.train("cage2", run=tmp_path / "whole", **options)
    halves = cavalcade.train("cage2", run=tmp_path / "half", callbacks=[lambda u: u.number == 5], **options)
    assert not halves.outcome.finished
    halves = halves.resume(progress=False)
    assert halves.outcome.finished
    first, second = (run.policy() for run in (whole, halves))
    observations = np.random.default_rng(0).integers(0, 2, (50, 52))
    assert np.array_equal(first.evaluate(observations).value, second.evaluate(observations).value)
    assert (tmp_path / "whole" / "episodes.csv").read_text() == (tmp_path / "half" / "episodes.csv").read_text()
    assert f"{mine}:mix" in (tmp_path / "whole" / "episodes.csv").read_text()
    assert f"{mine}:mix" in str(whole.heldout())


def test_python_takes_the_function_itself(mine, tmp_path):
    reds = importlib.import_module(mine)
    options = {"num_envs": 10, "rollout_steps": 30, "hidden": (8,), "episodes": 4, "threads": 1, "progress": False}
    run = cavalcade.train("cage2", red=reds.mix, run=tmp_path / "run", **options)
    assert run.config.task.red == f"{mine}:mix"
    assert (run.evaluate(episodes=2, cells=("bline-30",)).scores[0].episodes) == 2
    env = cavalcade.make_env(num_envs=4, red=reds.plain)
    assert env.state.red.tolist() == [OWN] * 4
    searched = api.search_config("cage2", api._plain(SearchConfig, {"red": reds.mix}))
    assert searched.task.red == f"{mine}:mix"


def test_a_function_that_no_name_leads_to_is_refused(mine, monkeypatch):
    reds = importlib.import_module(mine)

    def nested(s, e, key):
        return 0, 0

    class Callable:
        def __call__(self, s, e, key):
            return 0, 0

    for red, label in ((lambda s, e, key: (0, 0), "<lambda>"), (nested, "nested"), (Callable(), "Callable")):
        with pytest.raises(
            ConfigError, match=rf"red is {label} of .*; a run keeps its Red as module:function.*my_reds"
        ):
            cavalcade.make_env(num_envs=4, red=red)
    monkeypatch.setattr(reds.mix, "__module__", "__main__")
    with pytest.raises(ConfigError, match="red is mix of __main__; a run keeps"):
        cavalcade.search(red=reds.mix)
    with pytest.raises(ConfigError, match=r"red <lambda> takes \(s\); a Red is a function"):
        cavalcade.train("cage2", red=lambda s: 0)


def test_a_gpu_takes_compiled_reds_and_no_belief(mine, monkeypatch):
    monkeypatch.setattr(gpu, "device_named", lambda name: gpu.torch.device("cuda"))
    monkeypatch.setattr("cavalcade.core.cuda.check_device", lambda: None)
    monkeypatch.setattr(gpu, "check", lambda *args: None)
    settings = Cage2Config()

    def device(name, red, extras=()):
        task = type(settings.task)(red=red, extras=extras)
        return gpu.cuda_device(name, settings.ppo, task)

    assert device("cuda", f"{mine}:mix")[0].type == "cuda"
    found, notes = device("auto", f"{mine}:plain")
    assert found.type == "cpu"
    assert "is plain Python" in notes[0]
    with pytest.raises(ConfigError, match="is plain Python, which no GPU can play"):
        device("cuda", f"{mine}:plain")
    assert device("auto", "bline", ("belief",))[0].type == "cpu"
    with pytest.raises(ConfigError, match="extras has belief, which no GPU computes"):
        device("cuda", "bline", ("belief",))
