"""Train on a batch environment of your own: a class that follows `cavalcade.core.contract.Environment`.

    python examples/own_environment.py

All games of the batch live in arrays; a step is array arithmetic. From the command line the same class is
`cavalcade train env:own_environment:Corridor`.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

import cavalcade
from cavalcade.core.contract import Buffers, Environment, EnvSpec


class Corridor(Environment):
    """Walk right to the end of a corridor: −1 per step, 40 steps at most."""

    def __init__(self, num_envs: int, *, seed: Any = 0, length: int = 10, horizon: int = 40):
        self.length, self.horizon, self._seed = length, horizon, seed
        self.spec = EnvSpec("corridor", num_envs, Box(0, 1, (length,), np.float32), Discrete(2))
        shown = (np.zeros((num_envs, length), np.float32) for _ in range(2))
        observation, final = shown
        self.buffers = Buffers(
            observation,
            np.zeros(num_envs, np.float32),
            np.zeros(num_envs, np.bool_),
            np.zeros(num_envs, np.bool_),
            final,
            np.ones((num_envs, 2), np.bool_),
        )
        self._place, self._time = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._actions = np.zeros(num_envs, np.int64)

    def reset(self, *, seed=None, indices=None) -> Buffers:
        """Begins the next episode."""
        rows = slice(None) if indices is None else indices
        self._place[rows] = self._time[rows] = 0
        self._show(self.buffers.observation)
        return self.buffers

    def send(self, actions) -> None:
        """Takes one action per environment: 0 left, 1 right."""
        self._actions[:] = actions

    def recv(self) -> Buffers:
        """One step of every game; those that end begin anew in the same step."""
        b = self.buffers
        self._place[:] = np.clip(self._place + 2 * self._actions - 1, 0, self.length - 1)
        self._time += 1
        b.reward[:] = -1
        b.terminated[:] = self._place == self.length - 1
        b.truncated[:] = ~b.terminated & (self._time == self.horizon)
        self._show(b.final_observation)
        ended = b.terminated | b.truncated
        self._place[ended] = self._time[ended] = 0
        self._show(b.observation)
        return b

    def save_state(self, indices=None) -> dict[str, np.ndarray]:
        """The games, row by environment."""
        rows = slice(None) if indices is None else indices
        return {"place": self._place[rows].copy(), "time": self._time[rows].copy()}

    def load_state(self, saved, indices=None) -> None:
        """Continues saved games."""
        rows = slice(None) if indices is None else indices
        self._place[rows], self._time[rows] = saved["place"], saved["time"]
        self._show(self.buffers.observation)

    def clone(self, indices=None) -> "Corridor":
        """A batch that plays on from these games."""
        saved = self.save_state(indices)
        other = Corridor(len(saved["place"]), seed=self._seed, length=self.length, horizon=self.horizon)
        other.load_state(saved)
        return other

    def _show(self, out: np.ndarray) -> None:
        out[:] = np.arange(self.length) == self._place[:, None]


if __name__ == "__main__":
    run = cavalcade.train(Corridor, env_options=("length=12",), num_envs=16, rollout_steps=64, steps=40_960)
    print(run.evaluate(episodes=20))
