"""A Gymnasium environment that breaks its contract in a way that is chosen by name."""

import subprocess
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

AT = 7  # the step in which it misbehaves
TROUBLES = (
    "none", "shape", "dtype", "nan", "inf", "none reward", "text reward", "inf reward", "nan reward", "array reward",
    "late exception", "system exit", "keyboard interrupt", "reset exception", "four values", "no info", "text end",
    "changing spaces", "close exception", "close twice", "leaking process", "out of bounds", "no seed", "slow reset",
    "prints", "object",
)  # fmt: skip


class Misbehaving(gymnasium.Env):
    """Shows its step; episodes have ten steps."""

    def __init__(self, trouble: str = "none"):
        self.trouble, self.steps, self.total = trouble, 0, 0
        self.observation_space: Any = Box(-10, 10, (3,), np.float32)
        self.action_space: Any = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if self.trouble != "no seed":
            super().reset(seed=seed)
        if self.trouble == "reset exception" and self.total > AT:
            raise RuntimeError("reset\nin two lines")
        if self.trouble == "slow reset":
            time.sleep(0.2)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.total += 1
        shown, reward, late = np.full(3, self.steps, np.float32), 1.0, self.steps >= 10
        if self.total < AT:
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
        if self.trouble == "leaking process" and self.total == AT:
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
