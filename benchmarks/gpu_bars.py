"""Measures training of CAGE-2 on a GPU and prints every figure beside its bar.

K = 4, networks of 64-64, tf32, 100 steps per rollout. Rates are medians of ten updates of a policy that has trained for
so many updates; times to a score are whole trainings once kernels are compiled, one seed at a time, scored on 1,000
held-out games.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cavalcade.cli.bench.gpu import Red, engine_for, training_rate
from cavalcade.config.io import from_dict
from cavalcade.config.presets import recipe
from cavalcade.core.cuda import check_device
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policies import load_policy
from cavalcade.runs.training import Training
from cavalcade.search.config import SearchConfig
from cavalcade.search.run import Search
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.cage2.scoring import score

# What, Red, policies, environments, minibatches, updates before the measurement, bar in steps per second.
RATES: tuple[tuple[str, Red, int, int, int, int, float], ...] = (
    ("65,536 environments", "meander", 1, 65_536, 32, 30, 100e6),
    ("65,536 environments", "bline", 1, 65_536, 32, 30, 100e6),
    ("4,096 environments", "meander", 1, 4096, 4, 150, 50e6),
    ("200 environments", "meander", 1, 200, 4, 300, 5e6),
    ("120 policies × 50 environments", "meander", 120, 50, 1, 60, 60e6),
)  # fmt: skip
SCORES: tuple[tuple[Red, float], ...] = (("bline", -13.5), ("meander", -16.7))
SEEDS, SECONDS, FIRST, SEARCH = 5, 1.5, 25.0, 15e6


def report(what: str, bar: str, found: str, reached: bool) -> None:
    print(f"{what:<52}{bar:>14}{found:>40}   {'reached' if reached else 'not reached'}", flush=True)


def rates() -> None:
    for what, red, policies, envs, minibatches, before, bar in RATES:
        engine = engine_for(envs, minibatches, (64, 64), "tf32", policies, red)
        for _ in range(before):
            engine.collect()
            engine.update(0.0)
        got = training_rate(engine)
        words = f"{got.steps / 1e6:.1f} M/s, {got.distinct:.2%} distinct"
        report(f"{what}, {red}", f"≥ {bar / 1e6:.0f} M/s", words, got.steps >= bar)


def trained(red: Red, seed: int, episodes: int = 0) -> tuple[float, float]:
    """Seconds of the recipe for a GPU, and the held-out score."""
    config = from_dict(Cage2Config, recipe(f"cage2-{red}-gpu"))
    config = replace(config, seed=seed, checkpoint_every=0, episodes=episodes or config.episodes)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder, "run"), Cage2Config)
        with run.locked():
            seconds = Training(run, config, quiet=True).train().seconds
        runner = load_policy(run.path).runner(0)
        cell = next(iter(score(runner, config.task, [red], [config.task.horizon], 1000, seed=seed)))
    return seconds, cell.mean


def times_to_scores() -> None:
    for red, bar in SCORES:
        trained(red, 0, episodes=8000)  # compiles
        found = [trained(red, seed) for seed in range(SEEDS)]
        seconds, mean = max(s for s, _ in found), sum(x for _, x in found) / SEEDS
        words = f"{seconds:.1f} s at most, mean {mean:.2f}"
        report(f"{bar} against {red}, {SEEDS} seeds", f"≤ {SECONDS} s", words, seconds <= SECONDS and mean >= bar)


def first_update() -> None:
    with tempfile.TemporaryDirectory() as folder:
        args = (
            "train",
            "cage2",
            "--recipe",
            "cage2-bline-gpu",
            "--episodes",
            "200",
            "--run",
            f"{folder}/run",
            "--quiet",
        )
        start = time.perf_counter()
        environment = os.environ | {"NUMBA_CACHE_DIR": f"{folder}/cache"}
        subprocess.run([sys.executable, "-m", "cavalcade", *args], check=True, env=environment)
        seconds = time.perf_counter() - start
    report(
        "process start to the end of one update, empty cache", f"≤ {FIRST:.0f} s", f"{seconds:.1f} s", seconds <= FIRST
    )


def searched() -> tuple[int, float]:
    """Steps and seconds of a search with default settings."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder, "run"), SearchConfig)
        with run.locked():
            search = Search(run, SearchConfig(device="cuda"))
            while not search.done:
                for _ in search.advance():
                    pass
            search.close()
        return search.steps, search.seconds


def workflow_search() -> None:
    searched()  # compiles
    steps, seconds = searched()
    report(
        "default workflow search",
        f"≥ {SEARCH / 1e6:.0f} M/s",
        f"{steps / seconds / 1e6:.1f} M/s",
        steps / seconds >= SEARCH,
    )


if __name__ == "__main__":
    check_device()
    rates()
    times_to_scores()
    first_update()
    workflow_search()
