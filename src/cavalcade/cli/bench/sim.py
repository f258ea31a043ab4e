"""How fast CAGE-2 steps: batch sizes, threads, a single environment through Gymnasium, time to the first step."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scenario import NUM_ACTIONS
from cavalcade.envs.cage2.state import bytes_per_environment
from cavalcade.jit import all_threads

BATCHES = (1, 16, 256, 4_096, 65_536, 1_000_000)
REDS = ("bline", "meander")
_ROUNDS = 5
_FIRST_STEP = "from cavalcade.envs.cage2 import Cage2; env = Cage2(4096); env.reset(); env.step([0] * 4096)"


def steps_per_second(envs: Sequence[Cage2], seconds: float) -> list[float]:
    """Environment steps per second of each batch: uniform random Blue, everything written, autoreset on.

    Best of several rounds, the batches taking turns, so that a busy neighbour does not fall on one of them alone.
    """
    actions = np.random.default_rng(0).integers(NUM_ACTIONS, size=(16, envs[0].spec.num_envs), dtype=np.int32)
    best = [0.0] * len(envs)
    for env in envs:
        env.reset()
    for _ in range(_ROUNDS):
        for i, env in enumerate(envs):
            steps, start, elapsed = 0, time.perf_counter(), 0.0
            while elapsed < seconds / _ROUNDS:
                env.step(actions[steps % 16])
                steps += 1
                elapsed = time.perf_counter() - start
            best[i] = max(best[i], steps * env.spec.num_envs / elapsed)
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
            envs = [Cage2(n, red=red, threads=count, dtype=dtype) for count in counts]
            rates = dict(zip(counts, steps_per_second(envs, seconds), strict=True))
            yield {"red": red, "num_envs": n, "dtype": dtype, "steps_per_second": rates}


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
