"""How fast CAGE-2 steps: batch sizes, threads, a single environment through Gymnasium, time to the first step."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scenario import NUM_ACTIONS
from cavalcade.envs.cage2.state import bytes_per_environment
from cavalcade.envs.jit import all_threads

BATCHES = (1, 16, 256, 4_096, 65_536, 1_000_000)
REDS = ("bline", "meander")
_ROUNDS = 5
_FIRST_STEP = "from cavalcade.envs.cage2 import Cage2; env = Cage2(4096); env.reset(); env.step([0] * 4096)"


def steps_per_second(env: Cage2, seconds: float) -> float:
    """Environment steps per second, best of several rounds, uniform random Blue, everything written, autoreset on."""
    n = env.spec.num_envs
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=(16, n), dtype=np.int32)
    env.reset()
    env.step(actions[0])
    best = 0.0
    for _ in range(_ROUNDS):
        steps, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds / _ROUNDS or not steps:
            env.step(actions[steps % 16])
            steps += 1
        best = max(best, steps * n / (elapsed or seconds))
    return best


def warm_up(dtype: str) -> None:
    """Compiles, or loads from the cache, everything that is measured."""
    for threads in (1, 2):
        env = Cage2(1024, threads=threads, dtype=dtype)
        env.reset()
        env.step(np.zeros(1024, np.int32))


def thread_counts(most: int) -> list[int]:
    """Numbers of threads to try: 1, 2, 4 … up to the given number, or to all there are."""
    most = min(most or all_threads(), all_threads())
    return sorted({2**i for i in range(most.bit_length())} | {most})


def batch_rows(counts: list[int], seconds: float, dtype: str) -> Iterator[dict[str, Any]]:
    """One row per agent and batch size, with a figure per number of threads."""
    for red in REDS:
        for n in BATCHES:
            row: dict[str, Any] = {"red": red, "num_envs": n, "dtype": dtype, "steps_per_second": {}}
            for count in counts:
                env = Cage2(n, red=red, threads=count, dtype=dtype)
                row["steps_per_second"][count] = steps_per_second(env, seconds)
            yield row


def single_environment(seconds: float) -> float:
    """Steps per second of one environment through `gymnasium.make`, resets included."""
    env = gymnasium.make(CAGE2_ID)
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=1000)
    best = 0.0
    for _ in range(_ROUNDS):
        env.reset(seed=0)
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds / _ROUNDS:
            for action in actions:
                if env.step(action)[3]:
                    env.reset()
            steps += len(actions)
        best = max(best, steps / (time.perf_counter() - start))
    return best


def start_seconds() -> dict[str, float]:
    """Seconds from process start to the end of the first step: with nothing compiled, then with a filled cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        found = {}
        for name in ("cold", "cached"):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", _FIRST_STEP], check=True, env=environment)
            found[name] = time.perf_counter() - start
    return found


def state_bytes() -> int:
    """Bytes of state per environment, observation buffers aside."""
    return bytes_per_environment()
