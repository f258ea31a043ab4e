"""`cavalcade bench sim`: how fast CAGE-2 steps.

Batch sizes, threads, a single environment through Gymnasium, and the time to the first step.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.core.errors import at_least
from cavalcade.core.jit import all_threads
from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scenario import NUM_ACTIONS
from cavalcade.envs.cage2.state import bytes_per_environment
from cavalcade.runs.waiting import PREPARING, waiting
from cavalcade.tuning import machine

BATCHES = (1, 16, 256, 4_096, 65_536, 1_000_000)
_REDS = ("bline", "meander")
_ROUNDS = 5
_FIRST_STEP = "from cavalcade.envs.cage2 import Cage2; env = Cage2(4096); env.reset(); env.step([0] * 4096)"


@dataclass(frozen=True)
class Options:
    """Measures the CAGE-2 simulator on this machine and prints a table."""

    seconds: float = 1.0
    """Time for each cell of the table."""
    threads: int = 0
    """Maximum number of threads to try; 0 for all."""
    dtype: Literal["uint8", "float32"] = "uint8"
    """Type of the observation values that are written."""
    start: bool = True
    """Also measure the time from process start to the first step, with nothing compiled (about 20 s) and cached."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints the table row by row and writes the figures."""
    options = parse(Options, args, "bench sim")
    check_seconds(options.seconds)
    at_least("threads", options.threads, 0)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe(), "state_bytes": bytes_per_environment(), "batches": []}
    print(f"CAGE-2 simulator: uniform random Blue, observation ({options.dtype}) and mask written, autoreset on")
    print(machine.line())
    with waiting(PREPARING):
        _warm_up(options.dtype)
    counts = _thread_counts(options.threads)
    print(f"\n{'Red':<9}{'environments':>13}" + "".join(f"{n:>13} thr" for n in counts) + "   steps/s, best of 5")
    for row in _batch_rows(counts, options.seconds, options.dtype):
        figures["batches"].append(row)
        rates = "".join(f"{rate:>17,.0f}" for rate in row["steps_per_second"].values())
        print(f"{row['red']:<9}{row['num_envs']:>13,}{rates}", flush=True)
    figures["gymnasium_steps_per_second"] = _single_environment(options.seconds)
    print(f"\none environment through gymnasium.make: {figures['gymnasium_steps_per_second']:,.0f} steps/s")
    print(f"state per environment: {figures['state_bytes']} bytes")
    if options.start:
        with waiting("measuring the start of a new process, cold and cached"):
            figures["start_seconds"] = _start_seconds()
        cold, cached = figures["start_seconds"].values()
        print(f"process start to first step: cold {cold:.1f} s, cached {cached:.1f} s")
    write_statistics(options.json, figures)
    return 0


def _steps_per_second(envs: Sequence[Cage2], seconds: float) -> list[float]:
    """Environment steps per second of each batch: uniform random Blue, everything written, autoreset on.

    Best of several rounds. Batches take turns, so that a busy neighbour does not slow down only one of them.
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


def _warm_up(dtype: str) -> None:
    """Compiles, or loads from the cache, everything that is measured."""
    for threads in (1, 2):
        env = Cage2(1024, threads=threads, dtype=dtype)
        env.reset()
        env.step(np.zeros(1024, np.int32))


def _thread_counts(most: int) -> list[int]:
    """Numbers of threads to try: 1, 2, 4 … up to the given number, or to all there are."""
    most = min(most or all_threads(), all_threads())
    return sorted({2**i for i in range(most.bit_length())} | {most})


def _batch_rows(counts: list[int], seconds: float, dtype: str) -> Iterator[dict[str, Any]]:
    """One row per agent and batch size, with a figure per number of threads."""
    for red in _REDS:
        for n in BATCHES:
            envs = [Cage2(n, red=red, threads=count, dtype=dtype) for count in counts]
            rates = dict(zip(counts, _steps_per_second(envs, seconds), strict=True))
            yield {"red": red, "num_envs": n, "dtype": dtype, "steps_per_second": rates}


def _single_environment(seconds: float) -> float:
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


def _start_seconds() -> dict[str, float]:
    """Seconds from process start to the end of the first step: with nothing compiled, then with a filled cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        found = {}
        for name in ("cold", "cached"):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", _FIRST_STEP], check=True, env=environment)
            found[name] = time.perf_counter() - start
    return found
