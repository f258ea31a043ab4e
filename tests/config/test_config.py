"""Settings: checked when made, plain data and back."""

import re

import pytest

from cavalcade.config import PPOConfig
from cavalcade.config.io import as_dict, differences, from_dict
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.targets.cage2.config import Cage2Config


def test_plain_data_and_back():
    config = Cage2Config(task=Cage2Task(red="mixed", extras=("scans", "time")), ppo=PPOConfig(hidden=(32,)), seed=4)
    assert from_dict(Cage2Config, as_dict(config)) == config


def test_what_is_not_named_is_as_in_the_base():
    base = Cage2Config(ppo=PPOConfig(epochs=7), seed=3)
    config = from_dict(Cage2Config, {"ppo": {"clip": 0.1}}, base=base)
    assert (config.seed, config.ppo.epochs, config.ppo.clip) == (3, 7, 0.1)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        ({"speed": 3}, "speed is not a setting; there are target, seed, checkpoint_every, keep_checkpoints, task, ppo"),
        ({"ppo": {"clipp": 3}}, "ppo.clipp is not a setting"),
        ({"ppo": 3}, "it must be a mapping"),
        ({"ppo": {"epochs": "many"}}, "ppo.epochs is 'many'; it must be of type int"),
        ({"ppo": {"epochs": True}}, "ppo.epochs is True"),
        ({"ppo": {"epochs": 0}}, "epochs is 0"),
        ({"ppo": {"hidden": 64}}, "ppo.hidden is 64; it must be a list"),
        ({"ppo": {"gamma": 1.5}}, "gamma is 1.5; it must be from 0 to 1"),
        ({"ppo": {"gamma": float("nan")}}, "gamma is nan"),
        ({"ppo": {"minibatches": 7}}, "do not divide into 7 minibatches"),
        (
            {"task": {"red": "wolf"}},
            "red is 'wolf'; it must be one of bline, meander, sleep, mixed, or module:",
        ),
        ({"task": {"extras": ["scans", "wings"]}}, "'wings'"),
        ({"task": {"horizon": 0}}, "horizon is 0"),
        ({"episodes": 10}, "fewer than one update"),
        ([1, 2], "must be a mapping"),
    ],
)
def test_bad_settings_are_refused_with_their_name(plain, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        from_dict(Cage2Config, plain)


def test_the_budget_of_episodes_is_never_exceeded():
    config = Cage2Config(episodes=1234, ppo=PPOConfig(num_envs=50, rollout_steps=25))
    steps = config.updates * 50 * 25
    assert steps <= 1234 * 100 < steps + 50 * 25


def test_differences_are_named():
    one = Cage2Config()
    other = Cage2Config(ppo=PPOConfig(clip=0.1), seed=2)
    assert differences(one, one) == []
    assert differences(one, other) == ["seed 0 before, 2 now", "ppo.clip 0.2 before, 0.1 now"]
