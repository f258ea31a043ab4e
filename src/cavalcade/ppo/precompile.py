"""Compiles the update in a second process while the first compiles the rest: once per version and machine.

The second process makes an update from an empty rollout of a stand-in batch with the shapes of the real one. Its
kernels go to the cache on disk, where the first process finds them. If it fails, the first process compiles by itself.
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
from cavalcade.config.io import as_dict, from_dict
from cavalcade.core.contract import Buffers, Environment, EnvSpec, Packed, SavedState
from cavalcade.core.jit import cache_path
from cavalcade.core.jit import config as numba_config
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.threads import choose_threads

_UPDATE = "cavalcade.ppo.engines.cpu.gradient"  # the kernels that take longest to compile


class StandIn(Environment):
    """A batch with the shapes and dtypes of another; stepping it does nothing."""

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
        """Constructor arguments of a stand-in for a batch, as plain data."""
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
        return self.buffers

    def send(self, actions: ArrayLike) -> None:
        """Does nothing."""

    def recv(self) -> Buffers:
        return self.buffers

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        return {}

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Does nothing."""

    def clone(self, indices: ArrayLike | None = None) -> "StandIn":
        return StandIn(**self.looks_of(self))


def small_engine(env: Environment, config: PPOConfig, seeds: list[int]) -> HostEngine:
    """An engine with one environment per policy and the shortest rollout."""
    steps = config.minibatches * config.grad_accum
    return make_engine(env, replace(config, num_envs=1, rollout_steps=steps), seeds)[0]


@contextmanager
def update_compiled_aside(env: Environment, config: PPOConfig) -> Iterator[None]:
    """Compiles the update for an environment in a second process while the block runs, unless it is cached."""
    looks = {"env": StandIn.looks_of(env), "config": as_dict(config)}
    done = Path(cache_path(_UPDATE), f"compiled-{looks['env']['dtype']}-{config.dedup}-{bool(config.value_clip)}")
    if numba_config.DISABLE_JIT or done.exists() or config.engine == "torch" or (os.cpu_count() or 1) < 2:
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


def compiled_engine(env: Environment, config: PPOConfig, seeds: list[int]) -> HostEngine:
    """Compiles all kernels of a training: steps the whole batch, then makes a rollout and an update of a small one."""
    with update_compiled_aside(env, config):
        env.reset()
        env.step(np.zeros(env.spec.num_envs, np.int64))
        learner = small_engine(env.clone(np.arange(len(seeds))), config, seeds)
        learner.collect()
    learner.update(0.0)
    return learner


def main() -> None:
    """Entry point of the second process."""
    looks = json.loads(sys.argv[1])
    choose_threads()
    small_engine(StandIn(**looks["env"]), from_dict(PPOConfig, looks["config"]), [0]).update(0.0)


if __name__ == "__main__":
    main()
