"""Compiling the update in a second process while the first compiles the rest: once per version and machine.

The second process makes an update from an empty rollout of a batch that only looks like the real one. What it compiles
lands in the cache on disk, where the first finds it. Should it fail, the first compiles by itself.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import ArrayLike

from cavalcade.config import PPOConfig
from cavalcade.envs.contract import Buffers, Environment, EnvSpec, Packed, SavedState
from cavalcade.jit import cache_path
from cavalcade.jit import config as numba_config
from cavalcade.plain import as_dict, from_dict
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.threads import choose_threads


class StandIn(Environment):
    """A batch with the shapes and types of another in which nothing ever happens."""

    def __init__(self, observation: int, dtype: str, actions: int, words: tuple[int, int] | None):
        self.spec = EnvSpec("stand-in", 1, Box(0, 1, (observation,), np.dtype(dtype).type), Discrete(actions))
        shown = [np.zeros((1, observation), dtype) for _ in range(2)]
        flags = [np.zeros(1, np.bool_) for _ in range(2)]
        mask = np.ones((1, actions), np.bool_)
        self.buffers = Buffers(shown[0], np.zeros(1, np.float32), flags[0], flags[1], shown[1], mask)
        if words:
            self.packed = Packed(*(np.zeros((1, w), np.int64) for w in (words[0], words[0], words[1])))

    @staticmethod
    def looks_of(env: Environment) -> dict[str, Any]:
        """What a stand-in has to know of the real batch, as plain data."""
        observation = env.buffers.observation
        words = (env.packed.observation.shape[1], env.packed.action_mask.shape[1]) if env.packed else None
        actions = env.buffers.action_mask.shape[1]
        return {
            "observation": observation.shape[1],
            "dtype": str(observation.dtype),
            "actions": actions,
            "words": words,
        }

    def reset(self, *, seed: Any = None, indices: ArrayLike | None = None) -> Buffers:
        """Nothing happens."""
        return self.buffers

    def send(self, actions: ArrayLike) -> None:
        """Nothing happens."""

    def recv(self) -> Buffers:
        """Nothing happens."""
        return self.buffers

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """There is none."""
        return {}

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """There is none."""

    def clone(self, indices: ArrayLike | None = None) -> "StandIn":
        """Another one."""
        return StandIn(**self.looks_of(self))


def small_learner(env: Environment, config: PPOConfig, seeds: list[int]) -> Learner:
    """A learner with one environment per policy and the shortest rollout."""
    steps = config.minibatches * config.accumulate
    return make_learner(env, replace(config, num_envs=1, update_steps=steps), seeds)[0]


@contextmanager
def update_compiled_aside(env: Environment, config: PPOConfig) -> Iterator[None]:
    """While the block runs, a second process compiles the update for such an environment, unless that was done."""
    looks = {"env": StandIn.looks_of(env), "config": as_dict(config)}
    done = Path(cache_path(), f"compiled-{looks['env']['dtype']}-{config.rows}-{bool(config.value_clip)}")
    if numba_config.DISABLE_JIT or done.exists() or config.learner == "torch" or (os.cpu_count() or 1) < 2:
        yield
        return
    command = [sys.executable, "-m", "cavalcade.ppo.precompile", json.dumps(looks)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        if process.wait() == 0:
            with suppress(OSError):
                done.touch()
    finally:
        process.kill()
        process.wait()


def compiled_learner(env: Environment, config: PPOConfig, seeds: list[int]) -> Learner:
    """Compiles what learning in a batch needs: steps of all of it, then a rollout and an update of a small one."""
    with update_compiled_aside(env, config):
        env.reset()
        env.step(np.zeros(env.spec.num_envs, np.int64))
        learner = small_learner(env.clone(np.arange(len(seeds))), config, seeds)
        learner.collect()
    learner.update(0.0)
    return learner


def main() -> None:
    """The second process."""
    looks = json.loads(sys.argv[1])
    choose_threads()
    small_learner(StandIn(**looks["env"]), from_dict(PPOConfig, looks["config"]), [0]).update(0.0)


if __name__ == "__main__":
    main()
