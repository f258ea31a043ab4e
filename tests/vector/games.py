"""Environments to be hosted in tests: one that counts, and makes trouble once if asked."""

import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Tuple

from cavalcade.envs.catch import Catch


class Counting(gymnasium.Env):
    """Shows (step, episode, seed, last action); over after 5 steps if the seed is even, out of time after 7 if odd."""

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(3)

    def __init__(self, trouble="", at=0, flag=""):
        self.trouble, self.at, self.flag = trouble, at, flag
        self.episode = self.total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.seed = seed % 10**6  # exact in float32
        if self.trouble == "reset" and self.total >= self.at:
            self._once()
        self.step_count = 0
        self.episode += 1
        return self._show(0), {}

    def _show(self, action):
        return np.array([self.step_count, self.episode, self.seed, action], np.float32)

    def step(self, action):
        self.step_count += 1
        self.total += 1
        observation, reward = self._show(action), float(action)
        if self.total == self.at and self.trouble:
            if self.trouble in ("nan", "nan at the end"):
                bad = observation * (np.nan if self._first() else 1)
                return bad, reward, False, self.trouble == "nan at the end", {}
            if self.trouble != "reset":
                self._once()
        over = self.step_count == 5 and self.seed % 2 == 0
        late = self.step_count == 7
        return observation, reward, over, late, {}

    def _first(self):
        """Whether no other environment has made trouble yet."""
        try:
            os.close(os.open(self.flag, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _once(self):
        """Makes trouble, unless that was done."""
        if not self._first():
            return
        if self.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.trouble == "hang":
            time.sleep(3600)
        raise ValueError("something went wrong in the game")


class Gated(Counting):
    """The first to take its `at`-th step waits there until a file exists."""

    def __init__(self, at, flag, gate):
        super().__init__(at=at, flag=flag)
        self.gate = gate

    def step(self, action):
        if self.total + 1 == self.at and self._first():
            while not os.path.exists(self.gate):
                time.sleep(0.01)
        return super().step(action)


class Masked(Counting):
    """Action 2 is never allowed; tells so by a method."""

    def action_masks(self):
        return np.array([True, True, False])


class Blocked(Counting):
    """Allows no action from the third step on, in the second part of its actions."""

    action_space = MultiDiscrete([2, 3])

    def step(self, action):
        *result, _ = super().step(0)
        return *result, {"action_mask": [True, False, *[self.step_count < 3] * 3]}


class Informed(Counting):
    """Tells masks and statistics in infos, and shows its true state."""

    def reset(self, **options):
        observation, _ = super().reset(**options)
        return observation, {"action_mask": np.array([True, False, True])}

    def step(self, action):
        *result, _ = super().step(action)
        episode_stats = {"half": self.step_count / 2, "word": "no number", "action_mask": np.array([False, True, True])}
        return *result, episode_stats

    def true_state(self):
        return [100 + self.step_count, self.episode]


class LateMask(Counting):
    """Tells masks in the infos of steps only."""

    def step(self, action):
        *result, _ = super().step(action)
        return *result, {"action_mask": np.array([False, True, True])}


class Closing(Counting):
    """Says when it steps, which takes a while, and that it was closed."""

    def step(self, action):
        self._say("stepping")
        time.sleep(0.2)
        return super().step(action)

    def close(self):
        self._say("closed")

    def _say(self, word):
        with open(self.flag, "a") as file:
            file.write(f"{word}\n")


class Unlucky(Counting):
    """Half of all seeds cannot be begun with."""

    def reset(self, *, seed=None, options=None):
        if seed is not None and seed % 2:
            raise ValueError("this seed brings no luck")
        return super().reset(seed=seed, options=options)


class Nested(gymnasium.Env):
    """Observations and actions of several kinds."""

    observation_space = Dict(
        {
            "b": Discrete(3),
            "a": Tuple((Box(0, 1, (2, 2), np.float32), MultiDiscrete([2, 3]))),
        }
    )
    action_space = Dict({"y": Discrete(2, start=5), "x": Tuple((MultiDiscrete([3, 4]), MultiBinary(2)))})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def _show(self):
        return {"b": 2, "a": (np.arange(4, dtype=np.float32).reshape(2, 2) / 4, np.array([1, 2]))}

    def step(self, action):
        assert self.action_space.contains(action)
        pair, bits = action["x"]
        return self._show(), float(np.dot([*pair, *bits, action["y"]], [1, 10, 100, 1000, 10000])), *END


END = False, False, {}


class Broken(Counting):
    """Goes wrong at its fortieth step, always."""

    def __init__(self):
        super().__init__(trouble="raise", at=40)

    def _once(self):
        raise ValueError("something went wrong in the game")


class Punctual(Counting):
    """Tells in its infos by how many nanoseconds Linux may end its sleeps late."""

    def step(self, action):
        *result, _ = super().step(action)
        with open("/proc/self/timerslack_ns") as file:
            return *result, {"slack": int(file.read())}


class Mute(Counting):
    """Never answers its eighth step."""

    def step(self, action):
        if self.total == 7:
            time.sleep(3600)
        return super().step(action)


class Stillborn(Counting):
    """Cannot even begin."""

    def reset(self, *, seed=None, options=None):
        raise ValueError("nothing works in this game")


class Bare(Counting):
    """Returns no info from reset, as before Gymnasium."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class Steered(gymnasium.Env):
    """Reward is highest where the action equals the observation; a point within bounds that differ."""

    observation_space = Box(-1, 1, (2,), np.float64)
    action_space = Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self._show(), {}

    def _show(self):
        self.goal = self.np_random.uniform(-1, 1, 2)
        return self.goal

    def step(self, action):
        assert self.action_space.contains(action)
        wanted = self.goal * [2, 5] + [0, 5]
        reward = -float((((action - wanted) / [2, 5]) ** 2).sum())
        self.left -= 1
        return self._show(), reward, False, self.left == 0, {}


class Unbounded(Steered):
    """Bounds that are none."""

    most = np.finfo(np.float32).max
    action_space = Box(-most, most, (2,), np.float32)

    def step(self, action):
        return self.goal, float(action[0]), False, False, {}


class Picture(gymnasium.Env):
    """Bytes."""

    observation_space = Box(0, 255, (3, 4), np.uint8)
    action_space = MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full((3, 4), 200, np.uint8), {}

    def step(self, action):
        return np.full((3, 4), action[1], np.uint8), float(action[0]), False, False, {}


class Unflat(gymnasium.Env):
    """Observations without a fixed size."""

    observation_space = Sequence(Discrete(3))
    action_space = Discrete(2)


class Drawn(Counting):
    """Draws the number of its step; over after three, as the picture of the last one shows."""

    metadata = {"render_modes": ["ansi", "rgb_array"]}

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def step(self, action):
        observation, reward, *_ = super().step(action)
        return observation, reward, self.step_count == 3, False, {}

    def render(self):
        if self.render_mode == "rgb_array":
            return np.full((20, 20, 3), 10 * self.step_count, np.uint8)
        return f"drawn: {self.step_count}"


class Mixed(Counting):
    """Actions of two kinds at once."""

    action_space = Tuple((Discrete(2), Box(0, 1, (1,), np.float32)))


class Paddled(Catch):
    """Catch with a continuous action, or with two that are added."""

    def __init__(self, continuous=True, **options):
        super().__init__(cells=8, **options)
        self.action_space = Box(-1, 1, (1,), np.float32) if continuous else MultiDiscrete([2, 2])

    def step(self, action):
        return super().step(round(float(np.sum(action))) + (self.action_space.dtype.kind == "f"))


for kind in (
    Counting, Gated, Masked, Blocked, Informed, LateMask, Closing, Unlucky, Nested, Broken, Mute, Stillborn, Bare,
    Steered, Unbounded, Picture, Unflat, Drawn, Mixed, Punctual, Paddled,
):  # fmt: skip
    gymnasium.register(f"{kind.__name__}-v0", entry_point=f"{__name__}:{kind.__name__}")
gymnasium.register("Short-v0", entry_point=f"{__name__}:Counting", max_episode_steps=4)
