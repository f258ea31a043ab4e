"""Gymnasium environments: one that breaks its contract in a way chosen by name, one whose spaces a seed draws."""

import random
import subprocess
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Space, Text, Tuple

TROUBLES = (
    "none", "shape", "dtype", "nan", "inf", "none reward", "text reward", "inf reward", "nan reward", "array reward",
    "late exception", "system exit", "keyboard interrupt", "reset exception", "four values", "no info", "text end",
    "changing spaces", "close exception", "close twice", "leaking process", "out of bounds", "no seed", "slow reset",
    "prints", "object",
)  # fmt: skip


class Misbehaving(gymnasium.Env):
    """Shows its step; episodes have ten steps; at: the step from which on it misbehaves."""

    def __init__(self, trouble: str = "none", at: int = 7):
        self.trouble, self.at, self.steps, self.total = trouble, at, 0, 0
        self.observation_space: Any = Box(-10, 10, (3,), np.float32)
        self.action_space: Any = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if self.trouble != "no seed":
            super().reset(seed=seed)
        if self.trouble == "reset exception" and self.total > self.at:
            raise RuntimeError("reset\nin two lines")
        if self.trouble == "slow reset":
            time.sleep(0.2)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.total += 1
        shown, reward, late = np.full(3, self.steps, np.float32), 1.0, self.steps >= 10
        if self.total < self.at:
            return shown, reward, False, late, {}
        answers: dict[str, Any] = {
            "shape": (np.zeros(4, np.float32), reward, False, late, {}),
            "dtype": (np.array(["a", "b", "c"]), reward, False, late, {}),
            "object": (object(), reward, False, late, {}),
            "nan": (shown * np.nan, reward, False, late, {}),
            "inf": (shown * np.inf, reward, False, late, {}),
            "out of bounds": (shown * 1e30, reward, False, late, {}),
            "none reward": (shown, None, False, late, {}),
            "text reward": (shown, "one", False, late, {}),
            "inf reward": (shown, np.inf, False, late, {}),
            "nan reward": (shown, np.nan, False, late, {}),
            "array reward": (shown, np.ones(2), False, late, {}),
            "four values": (shown, reward, late, {}),
            "no info": (shown, reward, False, late, None),
            "text end": (shown, reward, "no", late, {}),
        }
        if self.trouble == "late exception":
            raise ValueError("late\nin two lines")
        if self.trouble == "system exit":
            raise SystemExit(3)
        if self.trouble == "keyboard interrupt":
            raise KeyboardInterrupt
        if self.trouble == "changing spaces":
            self.observation_space, self.action_space = Box(0, 1, (5,)), Discrete(7)
        if self.trouble == "leaking process" and self.total == self.at:
            subprocess.Popen(["sleep", "30"])
        if self.trouble == "prints":
            print("a line on standard output")
        return answers.get(self.trouble, (shown, reward, False, late, {}))

    def close(self) -> None:
        if self.trouble == "close exception":
            raise RuntimeError("close")
        if self.trouble == "close twice":
            self.trouble = "close exception"
            self.close()


class DrawnSpaces(gymnasium.Env):
    """Observations and rewards at random, in spaces that a seed draws; episodes end at random."""

    def __init__(self, drawn: int = 0):
        rng = random.Random(drawn)
        self.observation_space, self.action_space = space(rng), space(rng)
        self.observation_space.seed(drawn)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise AssertionError(f"{action!r} is not in {self.action_space}")
        ended = self.np_random.random(2) < 0.1
        return self.observation_space.sample(), float(self.np_random.normal()), bool(ended[0]), bool(ended[1]), {}


def space(rng: random.Random, depth: int = 2) -> Space:
    """Any of Gymnasium's spaces, also of those that no policy can handle."""
    if depth and rng.random() < 0.25:
        parts = [space(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        named = {f"part {i}": part for i, part in enumerate(parts)}
        return Dict(named) if rng.random() < 0.5 else Tuple(parts)
    kind = rng.choice(("box", "box", "box", "discrete", "discrete", "choices", "bits", "odd"))
    shape = (
        (0,)
        if rng.random() < 0.03
        else tuple(rng.choice((1, 1, 2, 2, 3, 3, 9, 40)) for _ in range(rng.choice((0, 1, 1, 1, 2, 3))))
    )
    if kind == "box":
        dtype: Any = rng.choice((np.float32, np.float32, np.float64, np.float16, np.uint8, np.int64, np.int8, np.bool_))
        if np.issubdtype(dtype, np.floating):
            low, high = rng.choice(((-1, 1), (-np.inf, np.inf), (0, np.inf), (0, 0), (-1e30, 1e30), (3, 4)))
        else:
            low, high = (0, 1) if dtype == np.bool_ else rng.choice(((0, 1), (0, 100), (5, 5)))
        return Box(low, high, shape, dtype)
    if kind == "discrete":
        return Discrete(rng.choice((1, 2, 5, 1000, 10**12)), start=rng.choice((0, 0, -3, 7)))
    if kind == "choices":
        return MultiDiscrete(np.full(shape or (1,), rng.choice((1, 2, 7))))
    if kind == "bits":
        return MultiBinary([max(1, size) for size in shape] or 1)
    return rng.choice((Text(5), Sequence(Discrete(3)), Graph(Box(0, 1, (2,)), None)))


gymnasium.register("Misbehaving-v0", Misbehaving)
gymnasium.register("DrawnSpaces-v0", DrawnSpaces)
