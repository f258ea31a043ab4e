"""Environments to measure hosts with: one whose steps take a set time, and one that numbers its transitions."""

import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

LOAD = "cavalcade.cli.bench.load:CavalcadeLoad-v0"
LEDGER = "cavalcade.cli.bench.load:CavalcadeLedger-v0"


class Load(gymnasium.Env):
    """Steps of low … high milliseconds, drawn anew each time; episodes of 100 steps.

    Args:
        low: shortest step, in milliseconds.
        high: longest.
        work: compute all that time instead of sleeping.
    """

    observation_space = Box(0, 1, (8,), np.float32)
    action_space = Discrete(4)

    def __init__(self, low: float = 1.0, high: float = 5.0, work: bool = False):
        self._low, self._high, self._work = low / 1000, high / 1000, work
        self._observation = np.zeros(8, np.float32)
        self._left = 100

    def reset(self, *, seed=None, options=None):
        """A new episode."""
        super().reset(seed=seed)
        self._left = 100
        return self._observation, {}

    def step(self, action):
        """Takes its time."""
        seconds = self.np_random.uniform(self._low, self._high)
        if self._work:
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass
        else:
            time.sleep(seconds)
        self._left -= 1
        return self._observation, 0.0, False, self._left == 0, {}


class Ledger(gymnasium.Env):
    """Shows (who, episode, step), so that nothing can be lost or counted twice unnoticed; the reward is the step."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Discrete(2)

    def __init__(self):
        self._who = self._episode = self._step = 0

    def reset(self, *, seed=None, options=None):
        """A new episode, of 5 to 20 steps."""
        super().reset(seed=seed)
        if seed is not None:
            self._who = seed % 2**20
        self._episode, self._step = self._episode + 1, 0
        self._length = int(self.np_random.integers(5, 21))
        return self._show(), {}

    def _show(self):
        return np.array([self._who, self._episode, self._step], np.float32)

    def step(self, action):
        """One more."""
        self._step += 1
        return self._show(), float(self._step), self._step == self._length, False, {}


for name, kind in ((LOAD, Load), (LEDGER, Ledger)):
    gymnasium.register(name.partition(":")[2], entry_point=f"{__name__}:{kind.__name__}")
