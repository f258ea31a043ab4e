"""`cavalcade bench mettagrid`: how fast MettaGrid is stepped and trained, what is learnt, and what each option costs.

Trainings are real runs by the command line, with logs and checkpoints, stopped by the clock. PufferLib and PuffeRL are
measured beside them by `benchmarks/peers/puffer.py`.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.bench.envs import hosted, in_process, rates
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.statistics import half_interval
from cavalcade.core.threads import cores
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.runs.files import METRICS
from cavalcade.runs.policies import load_policy
from cavalcade.runs.waiting import waiting
from cavalcade.targets.mettagrid.scoring import heldout_rewards, random_actor
from cavalcade.tuning import machine

TASK = "forage"
_WARM = 3.0  # seconds of a run that do not count
_GUIDE = ("--recipe", "mettagrid-guide")
_TRAININGS = {
    "feed-forward 128": ["--core", "none", "--num-envs", "64", "--batch-size", "98304", "--minibatch-size", "6144"],
    "LSTM-128": ["--core", "lstm", "--num-envs", "64", "--batch-size", "98304", "--minibatch-size", "6144"],
}

MONITORED = {"rollout_share": "rollout", "training_share": "training", "gpu_percent": "GPU"}  # columns by metric

Part = Literal["stepping", "training", "ablation", "learning", "hour"]


@dataclass(frozen=True)
class Options:
    """Measures MettaGrid on this machine."""

    parts: tuple[Part, ...] = ("stepping", "training", "ablation")
    """stepping: random actions. training: whole trainings. ablation: the performance guide's original against
    ultra_fast, knob by knob. learning: reward on held-out maps after --minutes. hour: whether speed decays in them."""
    arenas: tuple[int, ...] = (8, 64)
    """Numbers of arenas for stepping."""
    workers: int = 2
    """Worker processes for stepping."""
    seconds: float = 20.0
    """Time for each row."""
    rounds: int = 2
    """Rounds of training, the best of which counts."""
    minutes: float = 10.0
    """Time of each training for learning, or of the one for hour."""
    seeds: int = 3
    """Trainings for learning."""
    rows: tuple[str, ...] = ()
    """Rows of the ablation that contain one of these words, besides the first; all by default."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints a table per part."""
    options = parse(Options, args, "bench mettagrid")
    check_seconds(options.seconds)
    if not 1 <= options.minutes <= 120:
        raise ConfigError(f"minutes is {options.minutes}; it must be from 1 to 120")
    check_folder("json", options.json)
    for name in ("workers", "rounds", "seeds"):
        at_least(name, getattr(options, name), 1)
    for arenas in options.arenas:
        at_least("arenas", arenas, 2 * options.workers)
    print(machine.line(), flush=True)
    figures: dict[str, Any] = {"machine": machine.describe()}
    parts = {
        "stepping": _stepping, "training": _training, "ablation": _ablation, "learning": _learning, "hour": _hour,
    }  # fmt: skip
    for part in options.parts:
        figures[part] = parts[part](options)
    write_statistics(options.json, figures)
    return 0


# Stepping: random actions, nothing is learnt.


def stepping(arenas: int, workers: int, seconds: float) -> dict[str, float]:
    """Agent-steps per second with random actions, by backend."""
    source = mettagrid_source(TASK)
    rows = arenas * source.agents
    with ExitStack() as stack:
        ours = [
            in_process(Arenas(GAMES[TASK](), rows, threads=1), "compiled, one thread"),
            in_process(Arenas(GAMES[TASK](), rows, threads=workers), "compiled"),
            hosted(source, rows, "serial", backend="serial"),
            hosted(source, rows, "shared", backend="shared", workers=workers),
            hosted(source, rows, "async", backend="async", workers=workers, async_factor=2),
        ]
        for c in ours:
            stack.callback(c.close)
        return rates(ours, seconds)


def print_stepping(found: dict[int, dict[str, float]], workers: int) -> None:
    """The table of `stepping` by number of arenas."""
    title = f"MettaGrid {TASK}, 24 agents, agent-steps/s, {workers} workers"
    print(f"\n{title:<52}" + "".join(f"{f'{arenas} arenas':>14}" for arenas in found))
    for name in next(iter(found.values())):
        print(f"  {name:<50}" + "".join(f"{r[name]:>14,.0f}" for r in found.values()), flush=True)


def _stepping(options: Options) -> dict[int, dict[str, float]]:
    with waiting("stepping arenas"):
        found = {arenas: stepping(arenas, options.workers, options.seconds) for arenas in options.arenas}
    print_stepping(found, options.workers)
    return found


# Runs, stopped by the clock.


class Measured(NamedTuple):
    """Figures of a run."""

    rate: float  # agent-steps per second
    reward: float  # per agent-step, at the end of the time
    steps: int
    curve: list[tuple[float, float, float]]  # seconds, reward, steps so far
    monitored: dict[str, float]  # means of what the run monitored


def _measure(args: list[str], seconds: float, folder: Path) -> Measured:
    """Trains with given options for a time."""
    command = [sys.executable, "-m", "cavalcade", "train", "mettagrid", "--run", str(folder), "--quiet"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*command, "--steps", str(10**10), *args], stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(folder / METRICS, process)
            deadline = time.monotonic() + _WARM + seconds
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        finally:
            process.kill()
        said.seek(0)
        if process.returncode not in (0, 128 + signal.SIGTERM):
            raise ConfigError(f"a run with {' '.join(args)} failed: {said.read().strip().splitlines()[-1:]}")
    return read(folder, seconds)


def _wait_for(path: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and not (path.exists() and path.stat().st_size):
        time.sleep(0.1)


def read(folder: Path, seconds: float = float("inf")) -> Measured:
    """The figures of a run: rates without its first seconds, rewards of the last fifth of the time."""
    rows = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    start = next((i for i, row in enumerate(rows) if row["seconds"] >= _WARM), 0)
    first, last = rows[start], rows[-1]
    if start == len(rows) - 1:
        first = {"seconds": 0.0, "steps": 0}
    end = min(last["seconds"], _WARM + seconds)
    tail = [row["reward"][0] for row in rows if row["seconds"] >= 0.8 * end]
    rate = (last["steps"] - first["steps"]) / (last["seconds"] - first["seconds"])
    curve = [(row["seconds"], row["reward"][0], row["steps"]) for row in rows]
    watched = {name: [row[name][0] for row in rows[start:] if name in row] for name in MONITORED}
    monitored = {name: float(np.mean(values)) for name, values in watched.items() if values}
    return Measured(rate, float(np.mean(tail)), last["steps"], curve, monitored)


def training(seconds: float, rounds: int) -> Iterator[tuple[str, float]]:
    """Agent-steps per second of trainings, in turns; each name comes once per round."""
    for _ in range(rounds):
        for name, args in _TRAININGS.items():
            with tempfile.TemporaryDirectory() as folder:
                yield name, _measure(args, seconds, Path(folder, "run")).rate


def _training(options: Options) -> dict[str, float]:
    best: dict[str, float] = {}
    with waiting("training"):
        for name, rate in training(options.seconds, options.rounds):
            best[name] = max(best.get(name, 0.0), rate)
    print("\nTrainings, forage, 24 agents, agent-steps/s")
    for name, rate in best.items():
        print(f"  {name:<50}{rate:>14,.0f}", flush=True)
    return best


# Ablation: the performance guide, knob by knob.


_PRECISIONS, _MODES = ("fp32", "tf32", "bf16", "fp16"), ("default", "reduce-overhead")


def _ablation_rows(on_gpu: bool) -> dict[str, list[str]]:
    """Settings of the performance guide: its "original", one knob changed at a time, and all together.

    Its arena has 4 agents. Workers are as many as there are cores, instead of 4 and 16.
    """
    base = [*_GUIDE, "--hardware", "original", "--workers", str(min(cores(), 16))]
    fast = [*_GUIDE, "--hardware", "ultra_fast"]
    big = ["--batch-size", "262144", "--minibatch-size", "32768"]
    sizes = ["--num-envs", "64", "--batch-size", "16384", "--minibatch-size", "512"]
    off = [word for name in ("evaluate", "record", "statistics", "monitor") for word in (f"--{name}-every", "0")]
    return {
        "original": base,
        "  with 1 worker": [*base, "--workers", "1"],
        "  with async factor 8": [*base, "--async-factor", "8"],
        "  with one group, no overlap": [*base, "--backend", "shared"],
        "  with BPTT 32": [*base, "--bptt-horizon", "32"],
        "  with minibatches of 4,096": [*base, "--minibatch-size", "4096"],
        "  with batches of 262,144 / 32,768": [*base, *big],
        "  with that and 512 arenas": [*base, *big, "--num-envs", "512"],
        "  with monitoring and scores off": [*base, *off],
        "  with torch.compile": [*base, "--compile", "default"],
        "  with bf16": [*base, "--precision", "bf16"],
        "  with prioritised segments": [*base, "--priority-alpha", "0.8"],
        "  with contrastive loss": [*base, "--contrastive-coef", "0.1"],
        "  without memory": [*base, "--core", "none"],
        "original, compiled": [*_GUIDE, *sizes, "--core", "lstm"],
        **{f"ultra_fast, {name}": [*fast, "--precision", name] for name in _PRECISIONS if on_gpu or name == "fp32"},
        **{f"ultra_fast, compile {mode}": [*fast, "--compile", mode] for mode in _MODES if on_gpu},
        "ultra_fast without memory": [*fast, "--core", "none"],
        "ultra_fast, hosted": [*fast, "--simulator", "package", "--workers", str(min(cores(), 16))],
        "laptop sizes, 64 arenas": [
            *_GUIDE, "--hardware", "laptop", "--num-envs", "64", "--batch-size", "16384", "--minibatch-size", "2048",
        ],
    }  # fmt: skip


def _ablation(options: Options) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    print(f"\n{'The guide by knob, 4 agents per arena, LSTM-128':<40}{'agent-steps/s':>15}{'':>9}", end="")
    print(f"{f'reward after {options.seconds:g} s':>22}{'updates':>10}", end="")
    print("".join(f"{column:>10}" for column in MONITORED.values()), flush=True)
    for name, given in _ablation_rows(torch.cuda.is_available()).items():
        if found and options.rows and not any(word in name for word in options.rows):
            continue
        with waiting(name.strip()), tempfile.TemporaryDirectory() as folder:
            got = _measure(given, options.seconds, Path(folder, "run"))
        found[name.strip()] = {"rate": got.rate, "reward": got.reward, "updates": len(got.curve), **got.monitored}
        ratio = got.rate / found["original"]["rate"]
        print(f"  {name:<38}{got.rate:>15,.0f}{ratio:>8.2f}×{got.reward:>22.5f}{len(got.curve):>10}", end="")
        print("".join(_percent(column, got.monitored) for column in MONITORED), flush=True)
    return found


def _percent(metric: str, monitored: dict[str, float]) -> str:
    if metric not in monitored:
        return f"{'–':>10}"
    return f"{monitored[metric] * (1 if metric == 'gpu_percent' else 100):>8.0f} %"


# Learning: rewards on held-out maps after a time.


def _trained_rewards(seconds: float, seeds: int, args: list[str]) -> Iterator[tuple[int, Measured, np.ndarray]]:
    """Trainings of a time each, and rewards per agent-step on held-out maps, by seed."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = _measure([*args, "--seed", str(seed)], seconds - _WARM, Path(folder, "run"))
            runner = load_policy(Path(folder, "run")).runner(seed=seed)
            yield seed, found, heldout_rewards(runner, MettagridTask(), 16, seed=seed, backend="shared")


def _random_rewards(arenas: int = 16) -> np.ndarray:
    """Rewards per agent-step of acting at random on held-out maps."""
    return heldout_rewards(random_actor(0), MettagridTask(), arenas, seed=0, backend="shared")


def _learning(options: Options) -> dict[str, Any]:
    with waiting("acting at random"):
        random = _random_rewards()
    print(f"\nLearning, forage, 24 agents, {options.minutes:g} minutes; reward per agent-step on held-out maps")
    print(f"  at random   {random.mean():.5f} ± {half_interval(random):.5f}", flush=True)
    found: dict[str, Any] = {"random": random.tolist()}
    for seed, got, rewards in _trained_rewards(60 * options.minutes, options.seeds, ["--hardware", "laptop"]):
        times = rewards.mean() / random.mean()
        print(
            f"  seed {seed:<6} {rewards.mean():.5f} ± {half_interval(rewards):.5f}   {times:.1f} times chance; "
            f"{got.steps:,} steps, {got.rate:,.0f} a second",
            flush=True,
        )
        found[f"seed {seed}"] = {"rewards": rewards.tolist(), "rate": got.rate, "curve": got.curve}
    return found


# Hour: whether speed decays.


def minutes(curve: list[tuple[float, float, float]]) -> list[float]:
    """Agent-steps per second in each whole minute of a run."""
    at = np.array([second for second, _, _ in curve])
    steps = np.array([count for _, _, count in curve], float)
    edges = np.arange(0, int(at[-1] // 60) + 1) * 60.0
    return list(np.diff(np.interp(edges, at, steps)) / 60)


def _hour(options: Options) -> dict[str, Any]:
    with waiting(f"training for {options.minutes:g} minutes"), tempfile.TemporaryDirectory() as folder:
        got = _measure(["--hardware", "laptop"], 60 * options.minutes, Path(folder, "run"))
    speeds = minutes(got.curve)
    tail = speeds[-10:]
    print(f"\nTraining for {len(speeds)} minutes, agent-steps/s: first minute {speeds[0]:,.0f}, last {speeds[-1]:,.0f}")
    print(
        f"  last to first {speeds[-1] / speeds[0]:.3f}; "
        f"last {len(tail)} to first {sum(tail) / len(tail) / speeds[0]:.3f}"
    )
    return {"minutes": speeds}
