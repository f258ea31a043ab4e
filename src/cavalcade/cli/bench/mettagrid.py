"""`cavalcade bench mettagrid`: how fast MettaGrid is stepped and trained, what is learnt, and what each option costs.

Trainings are real runs by the command line, with logs and checkpoints, stopped by the clock. PufferLib and PuffeRL are
measured beside them by `benchmarks/peers/puffer.py`.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.bench.envs import hosted, in_process, rates
from cavalcade.cli.bench.mettagrid_guide import ablation, memory
from cavalcade.cli.bench.mettagrid_runs import MEMORY, WARM, Measured, measure, windows
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.core.device import Device, device_named
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.statistics import half_interval
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.games import GAMES
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.runs.policies import load_policy
from cavalcade.runs.waiting import waiting
from cavalcade.targets.mettagrid.scoring import heldout_rewards, random_actor
from cavalcade.tuning import machine

TASK = "forage"
_WINDOWS = 10  # of a training for hour
_TRAININGS = {
    "feed-forward 128": ["--core", "none", "--num-envs", "64", "--batch-size", "98304", "--minibatch-size", "6144"],
    "LSTM-128": ["--core", "lstm", "--num-envs", "64", "--batch-size", "98304", "--minibatch-size", "6144"],
}

Part = Literal["stepping", "training", "ablation", "memory", "learning", "hour"]


@dataclass(frozen=True)
class Options:
    """Measures MettaGrid on this machine."""

    parts: tuple[Part, ...] = ("stepping", "training", "ablation")
    """stepping: random actions. training: whole trainings. ablation: the performance guide's original against
    ultra_fast, knob by knob. memory: what presets need. learning: reward on held-out maps after --minutes. hour:
    whether speed decays or memory grows in them."""
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
    device: Device = "auto"
    """Device for learning and hour: on a GPU they train with --hardware gpu, else with laptop."""
    seeds: int = 3
    """Trainings for learning."""
    only: tuple[str, ...] = ()
    """Rows of the ablation that contain one of these words, besides the first; all by default."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints a table per part."""
    options = parse(Options, args, "bench mettagrid")
    check_seconds(options.seconds)
    if not 0.1 <= options.minutes <= 120:
        raise ConfigError(f"minutes is {options.minutes}; it must be from 0.1 to 120")
    check_folder("json", options.json)
    for name in ("workers", "rounds", "seeds"):
        at_least(name, getattr(options, name), 1)
    for arenas in options.arenas:
        at_least("arenas", arenas, 2 * options.workers)
    print(machine.line(), flush=True)
    figures: dict[str, Any] = {"machine": machine.describe()}
    parts: dict[str, Callable[[Options], Any]] = {
        "stepping": _stepping, "training": _training, "learning": _learning, "hour": _hour,
        "ablation": lambda given: ablation(given.seconds, given.only), "memory": lambda given: memory(),
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


# Training: whole runs.


def training(seconds: float, rounds: int) -> Iterator[tuple[str, float]]:
    """Agent-steps per second of trainings, in turns; each name comes once per round."""
    for _ in range(rounds):
        for name, args in _TRAININGS.items():
            with tempfile.TemporaryDirectory() as folder:
                yield name, measure(args, seconds, Path(folder, "run")).rate


def _training(options: Options) -> dict[str, float]:
    best: dict[str, float] = {}
    with waiting("training"):
        for name, rate in training(options.seconds, options.rounds):
            best[name] = max(best.get(name, 0.0), rate)
    print("\nTrainings, forage, 24 agents, agent-steps/s")
    for name, rate in best.items():
        print(f"  {name:<50}{rate:>14,.0f}", flush=True)
    return best


# Learning: rewards on held-out maps after a time.


def _trained_rewards(seconds: float, seeds: int, args: list[str]) -> Iterator[tuple[int, Measured, np.ndarray]]:
    """Trainings of a time each, and rewards per agent-step on held-out maps, by seed."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = measure([*args, "--seed", str(seed)], seconds - WARM, Path(folder, "run"))
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
    for seed, got, rewards in _trained_rewards(60 * options.minutes, options.seeds, _preset(options.device)):
        times = rewards.mean() / random.mean()
        print(
            f"  seed {seed:<6} {rewards.mean():.5f} ± {half_interval(rewards):.5f}   {times:.1f} times chance; "
            f"{got.steps:,} steps, {got.rate:,.0f} a second",
            flush=True,
        )
        found[f"seed {seed}"] = {"rewards": rewards.tolist(), "rate": got.rate, "curve": got.curve}
    return found


# Hour: whether speed decays or memory grows.


def _hour(options: Options) -> dict[str, Any]:
    with waiting(f"training for {options.minutes:g} minutes"), tempfile.TemporaryDirectory() as folder:
        args = [*_preset(options.device), "--monitor-every", "2"]
        got = measure(args, 60 * options.minutes, Path(folder, "run"))
    return print_hour(got)


def _preset(device: Device) -> list[str]:
    """The preset of a device, with the device."""
    kind = device_named(device).type
    return ["--hardware", "gpu" if kind == "cuda" else "laptop", "--device", kind]


def print_hour(got: Measured) -> dict[str, Any]:
    """Speed and memory in equal parts of a training's time, without its first seconds."""
    points = [(at, steps) for at, _, steps in got.curve if at >= WARM]
    ends, speeds = windows(points if len(points) > 1 else [(0.0, 0), *((at, n) for at, _, n in got.curve)], _WINDOWS)
    watched = {name: values for name, values in got.memory.items() if values}
    columns = {name: np.array(values).T for name, values in watched.items()}
    series = {name: np.interp(ends, at, size).tolist() for name, (at, size) in columns.items()}
    print(f"\nTraining for {ends[-1] / 60:.1f} minutes")
    print(f"  {'seconds':>8}{'agent-steps/s':>16}" + "".join(f"{MEMORY[name]:>14}" for name in series))
    for i, (end, speed) in enumerate(zip(ends, speeds, strict=True)):
        print(f"  {end:>8.0f}{speed:>16,.0f}" + "".join(f"{values[i]:>14,.0f}" for values in series.values()))
    grown = "".join(f"; last to second: {MEMORY[name]} {values[-1] / values[1]:.3f}" for name, values in series.items())
    print(f"  last part to first: agent-steps/s {speeds[-1] / speeds[0]:.3f}{grown}", flush=True)
    return {"seconds": ends, "rates": speeds, **series}
