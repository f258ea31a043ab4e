"""Environments that do not follow Gymnasium's API are told so, in its terms, before workers are started."""

import random
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from cavalcade.core.errors import ConfigError
from cavalcade.vector import source as module
from cavalcade.vector.source import gym_source

OK = np.zeros(3, np.float32)


class Faulty(gymnasium.Env):
    """Returns what it is told to."""

    action_space = Discrete(2)

    def __init__(self, space="box", first="ok", then="ok"):
        spaces = {
            "box": Box(-1, 1, (3,), np.float32),
            "discrete": Discrete(4),
            "byte": Box(0, 255, (3,), np.uint8),
            "dict": Dict(a=Discrete(2), b=Box(-1, 1, (3,))),
            "tuple": Tuple((Discrete(2), Discrete(2))),
        }
        if space != "none":
            self.observation_space = spaces[space]
        self.first, self.then = first, then

    def reset(self, *, seed=None, options=None):
        np.random.random()  # as some do
        random.random()
        return RESETS[self.first]

    def step(self, action):
        assert self.action_space.contains(action)
        return STEPS[self.then]


RESETS = {
    "ok": (OK, {}), "bare": OK, "list": [OK, {}], "word": (OK, "info"), "short": (OK[:2], {}), "deep": (OK[None], {}),
    "double": (np.zeros(3), {}), "text": (np.array(["a", "b", "c"]), {}), "wide": (OK + 9, {}), "digit": (3, {}),
    "beyond": (4, {}), "float": (1.5, {}), "keys": ({"a": 1}, {}), "part": ({"a": 1, "b": OK[:1]}, {}),
    "masked": (OK, {"action_mask": np.zeros(2, np.int8)}), "dict": ({"a": 1, "b": OK}, {}),
    "pair": ((1, 0), {}), "single": ((1,), {}),
}  # fmt: skip
STEPS = {
    "ok": (OK, 0.0, False, False, {}), "old": (OK, 0.0, False, {}), "short": (OK[:2], 0.0, False, False, {}),
    "reward": (OK, "much", False, False, {}), "rewards": (OK, np.zeros(2), False, False, {}),
    "info": (OK, 0.0, False, False, None), "infinite": (OK, -np.inf, False, False, {}),
    "nan": (OK * np.nan, 0.0, False, False, {}), "done": (OK, 0.0, None, False, {}),
    "masked": (OK, 0.0, False, False, {"action_mask": np.zeros(2, bool)}),
    "over": (OK, 0.0, True, False, {"action_mask": np.zeros(2, bool)}), "cut": (OK, 0.0, False, "no", {}),
    "numpy": (OK, np.float32(1), np.bool_(True), False, {}),
}  # fmt: skip
gymnasium.register("Faulty-v0", entry_point=Faulty, max_episode_steps=9)


class Seedless(Faulty):
    """Written for an older API."""

    def reset(self):
        return OK


gymnasium.register("Seedless-v0", entry_point=Seedless)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"first": "bare"}, "reset of Faulty-v0 returns one value of type ndarray; Gymnasium requires (observation,"),
        ({"first": "list"}, "reset of Faulty-v0 returns one value of type list"),
        ({"first": "word"}, "reset of Faulty-v0 returns 2 values (ndarray, str)"),
        ({"first": "short"}, "reset of Faulty-v0 returns an observation with shape (2,) and dtype float32; its"),
        ({"first": "short"}, "its observation_space is Box(-1.0, 1.0, (3,), float32)"),
        ({"first": "deep"}, "with shape (1, 3) and dtype float32"),
        ({"first": "text"}, "dtype <U1"),
        ({"first": "double", "space": "byte"}, "shape (3,) and dtype float64"),
        ({"first": "beyond", "space": "discrete"}, "an observation with 4; its observation_space is Discrete(4)"),
        ({"first": "float", "space": "discrete"}, "an observation with 1.5"),
        ({"first": "keys", "space": "dict"}, "an observation with keys 'a'; its"),
        ({"first": "bare", "space": "dict"}, "reset of Faulty-v0 returns one value"),
        ({"first": "ok", "space": "dict"}, "an observation with no mapping"),
        ({"first": "part", "space": "dict"}, "reset of Faulty-v0, key 'b', returns an observation with shape (1,)"),
        ({"first": "single", "space": "tuple"}, "1 values (int)"),
        ({"then": "old"}, "step of Faulty-v0 returns 4 values (ndarray, float, bool, dict); Gymnasium requires"),
        ({"then": "old"}, "(observation, reward, terminated, truncated, info); done is split into terminated"),
        ({"then": "short"}, "step of Faulty-v0 returns an observation with shape (2,)"),
        ({"then": "reward"}, "the reward 'much'; Gymnasium requires a number"),
        ({"then": "rewards"}, "the reward array([0., 0.]); Gymnasium requires a number"),
        ({"then": "infinite"}, "step of Faulty-v0 returns the reward -inf; it must be finite"),
        ({"then": "nan"}, "step of Faulty-v0 returns an observation with values that are NaN; its"),
        ({"then": "done"}, "step of Faulty-v0 returns terminated None; Gymnasium requires True or False"),
        ({"then": "cut"}, "step of Faulty-v0 returns truncated 'no'; Gymnasium requires True or False"),
        ({"first": "masked"}, "reset of Faulty-v0 returns an action_mask that allows no action"),
        ({"then": "masked"}, "step of Faulty-v0 returns an action_mask that allows no action; it must allow at least"),
        ({"then": "info"}, "5 values (ndarray, float, bool, bool, NoneType)"),
        ({"space": "none"}, "Faulty-v0 has observation_space None; Gymnasium requires a gymnasium.spaces.Space"),
    ],
)  # fmt: skip
def test_what_gymnasium_requires_is_said(options, said):
    with pytest.raises(ConfigError) as error:
        gym_source("Faulty-v0", options)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_reset_without_seed_is_told():
    with pytest.raises(ConfigError, match="takes no seed"):
        gym_source("Seedless-v0")


class Hanging(Faulty):
    """Waits for something that never comes."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def wait(self, where):
        if self.where == where:
            time.sleep(1e6)

    def reset(self, *, seed=None, options=None):
        self.wait("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.wait("step")
        return super().step(action)

    def close(self):
        self.wait("close")


gymnasium.register("Hanging-v0", entry_point=Hanging)


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_an_environment_that_hangs_is_left_to_its_workers(monkeypatch, where):
    """They have a time limit that users choose."""
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    assert gym_source("Hanging-v0", {"where": where}).name == "Hanging-v0"


@pytest.mark.parametrize(
    "options",
    [{}, {"first": "double"}, {"first": "wide"}, {"then": "numpy"},
     {"then": "over"}, {"first": "digit", "space": "discrete"},
     {"first": "dict", "space": "dict", "then": "ok"}, {"first": "pair", "space": "tuple"}],
)  # fmt: skip
def test_what_works_is_let_alone(options, monkeypatch):
    """Doubles and values out of bounds are common, and harmless."""
    if options.get("space"):
        monkeypatch.setitem(STEPS, "ok", (RESETS[options["first"]][0], 0.0, False, False, {}))
    gym_source("Faulty-v0", options)


def test_the_look_changes_no_random_numbers_and_is_made_once(monkeypatch):
    monkeypatch.setattr(module, "_CHECKED", set())
    np.random.seed(1)
    random.seed(1)
    calls = []
    monkeypatch.setattr(module, "check_api", lambda *args: calls.append(args) or real(*args))
    gym_source("Faulty-v0")
    gym_source("Faulty-v0")
    drawn = np.random.random(), random.random()
    np.random.seed(1)
    random.seed(1)
    assert drawn == (np.random.random(), random.random())
    assert len(calls) == 1


real = module.check_api
