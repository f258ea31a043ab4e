"""A game small enough to be worked out by hand: count to the end.

Environment e of the batch ends after 3 + e % 3 steps; those of even index end in a termination, those of odd index run
out of time. Reward 1 per step, 10 more for action 1; the observation is (step, e % 3). Action 2 is never allowed.
"""

import numpy as np
from gymnasium.spaces import Box, Discrete

from cavalcade.core.contract import Buffers, Environment, EnvSpec, checked_actions


class Toy(Environment):
    episode_kind_names = ("even", "odd")

    def __init__(self, n: int):
        self.spec = EnvSpec("toy", n, Box(0, 100, (2,), np.float32), Discrete(3))
        self.step_count, self.e = np.zeros(n, int), np.arange(n)
        flags = [np.zeros(n, np.bool_) for _ in range(2)]
        shows = [np.zeros((n, 2), np.float32) for _ in range(2)]
        self.buffers = Buffers(shows[0], np.zeros(n, np.float32), *flags, shows[1], np.ones((n, 3), np.bool_))
        self.buffers.action_mask[:, 2] = False
        self.episode_kinds = (self.e % 2).astype(np.int8)

    def reset(self, *, seed=None, indices=None):
        self.step_count[:] = 0
        self._show(self.buffers.observation)
        return self.buffers

    def _show(self, out):
        out[:] = np.column_stack([self.step_count, self.e % 3])

    def send(self, actions):
        actions = checked_actions(actions, self.spec.num_envs)
        b = self.buffers
        self.step_count += 1
        over = self.step_count == 3 + self.e % 3
        b.reward[:] = 1 + 10 * (actions == 1)
        b.terminated[:], b.truncated[:] = over & (self.e % 2 == 0), over & (self.e % 2 == 1)
        self._show(b.final_observation)
        self.step_count[over] = 0
        self._show(b.observation)

    def recv(self):
        return self.buffers

    def save_state(self, indices=None):
        return {"step_count": self.step_count.copy()}

    def load_state(self, saved, indices=None):
        self.step_count[:] = saved["step_count"]
        self._show(self.buffers.observation)

    def clone(self, indices=None):
        other = Toy(len(self.e) if indices is None else len(np.asarray(indices)))
        other.reset()
        return other
