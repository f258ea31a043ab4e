"""Targets as plug-ins: a fifth one is a class, and everything else works with it."""

from dataclasses import dataclass

import pytest

import cavalcade
from cavalcade import targets
from cavalcade.cli import main
from cavalcade.core.errors import ConfigError
from cavalcade.targets.base import Target
from cavalcade.targets.env import EnvConfig, EnvTarget
from tests.examples.test_examples import load_example


@dataclass(frozen=True, kw_only=True)
class CorridorConfig(EnvConfig):
    """A training in corridors."""

    target: str = "corridor"
    """What is trained on."""
    length: int = 6
    """Of the corridor."""

    def __post_init__(self):
        if not self.updates:
            raise ConfigError("too few steps")


class CorridorTarget(EnvTarget):
    """Corridors, by a name of their own."""

    name, prefix = "corridor", False
    Config = CorridorConfig
    PlayOptions = None

    def run_name(self, config):
        return "corridor"

    def make_env(self, config, threads=0, first_index=0):
        return load_example("own_environment").Corridor(config.ppo.num_envs, length=config.length)


@pytest.fixture
def corridor(monkeypatch):
    known = targets.targets()
    monkeypatch.setattr(targets, "targets", lambda: (*known, CorridorTarget()))


def test_a_new_target_is_trained_resumed_and_loaded(corridor, tmp_path, capsys):
    run = cavalcade.train(
        "corridor", length=5, num_envs=4, rollout_steps=16, steps=640, run=tmp_path / "run", threads=1, progress=False
    )
    assert run.outcome.finished
    assert run.config.length == 5
    assert run.policy()([0, 1, 0, 0, 0]) in (0, 1)
    with pytest.raises(SystemExit) as stop:
        main(["train", "corridor", "--length", "4", "--num-envs", "4", "--rollout-steps", "16", "--steps", "640",
              "--quiet", "--threads", "1", "--run", str(tmp_path / "by-command")])  # fmt: skip
    assert not stop.value.code
    with pytest.raises(SystemExit) as stop:
        main(["play", "corridor"])
    assert stop.value.code == 2
    assert "games of corridor cannot be watched" in capsys.readouterr().err


def test_an_unknown_target_is_refused_with_those_there_are():
    with pytest.raises(
        ConfigError, match="target is 'chess'; it must be one of cage2, cyborg, gym:NAME, mettagrid, env:NAME"
    ):
        targets.target_named("chess")


def test_every_shipped_target_brings_what_the_protocol_asks_for():
    for target in targets.targets():
        assert isinstance(target, Target)
        assert target.accepts(target.name + "x" * target.prefix)
        assert target.Config.target.startswith(target.name)
        assert target.EvaluateOptions()
