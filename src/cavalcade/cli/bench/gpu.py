"""`cavalcade bench gpu`: how fast the simulator, training and search of CAGE-2 are on a GPU."""

import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.parse import check_folder, parse
from cavalcade.config import PPOConfig
from cavalcade.config.io import from_dict
from cavalcade.config.presets import recipe
from cavalcade.core.cuda import check_device, cuda
from cavalcade.core.errors import at_least
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cuda import CudaGames
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policies import load_policy
from cavalcade.runs.training import Training
from cavalcade.search.config import SearchConfig
from cavalcade.search.run import Search
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.cage2.gpu import cuda_engine
from cavalcade.targets.cage2.scoring import score
from cavalcade.tuning import machine

_STEPS, _ROUNDS = 50, 15
_GPU = torch.device("cuda")
# Environments, minibatches, hidden layers, policies, and updates before the second measurement.
_SHAPES = (
    (65_536, 32, (64, 64), 1, 30), (65_536, 32, (256, 256), 1, 30), (16_384, 16, (64, 64), 1, 60),
    (4096, 4, (64, 64), 1, 150), (200, 4, (64, 64), 1, 300), (50, 1, (64, 64), 120, 60),
)  # fmt: skip
_PUBLISHED = (
    ("PokeJAX (arXiv 2603.12145)", "15.2 M, GPU and network not stated in its abstract"),
    ("PufferLib 5.0", "12.9 M, MinGRU 64 × 1, RTX 5090"),
    ("craftax.cu, classic", "5.8 M, MinGRU 256 × 3, RTX PRO 6000"),
)

Part = Literal["simulator", "training", "episodes", "learning", "workflows"]
Red = Literal["bline", "meander"]


@dataclass(frozen=True)
class Options:
    """Measures CAGE-2 on one GPU: games alone, PPO end to end, learning against time, all orders at once."""

    parts: tuple[Part, ...] = ("simulator", "training", "episodes", "learning", "workflows")
    """What to measure."""
    envs: tuple[int, ...] = (4096, 65_536, 262_144, 1_048_576)
    """Numbers of environments of the simulator."""
    reds: tuple[Red, ...] = ("bline", "meander")
    """Who attacks."""
    rounds: int = 5
    """Trainings of each order."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints a table per part."""
    options = parse(Options, args, "bench gpu")
    check_folder("json", options.json)
    at_least("rounds", options.rounds, 1)
    for count in options.envs:
        at_least("envs", count, 1)
    check_device()
    name = torch.cuda.get_device_name()
    print(f"{name}; {machine.line()}", flush=True)
    figures: dict[str, Any] = {"machine": machine.describe(), "device": name}
    parts = {
        "simulator": _simulator, "training": _training, "episodes": _episodes, "learning": _learning,
        "workflows": _workflows,
    }  # fmt: skip
    for part in options.parts:
        figures[part] = parts[part](options)
    write_statistics(options.json, figures)
    return 0


# Simulator: games alone.


def _simulator_rate(num_envs: int, red: str) -> float:
    """Steps per second, median of several replays."""
    env = Cage2(num_envs, red=red)
    env.reset()
    games = CudaGames(env)
    stream = torch.cuda.Stream()
    there: Any = cuda.external_stream(stream.cuda_stream)
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles before the capture
            games.draw(there)
            games.step(there)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(_STEPS):
                games.draw(there)
                games.step(there)
        seconds = []
        for _ in range(_ROUNDS):
            torch.cuda.synchronize()
            start = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    return num_envs * _STEPS / statistics.median(seconds)


def _simulator(options: Options) -> dict[int, dict[str, float]]:
    print("\nsimulator: steps/s, random Blue, packed observations, CUDA graph, median")
    print(f"{'environments':>14}" + "".join(f"{red:>18}" for red in options.reds))
    found = {}
    for count in options.envs:
        found[count] = {red: _simulator_rate(count, red) for red in options.reds}
        print(f"{count:>14,}" + "".join(f"{rate:>18,.0f}" for rate in found[count].values()), flush=True)
    return found


# Training: PPO end to end.


class Rate(NamedTuple):
    """How fast a training is."""

    steps: float  # per second, median of updates
    rollout: float  # milliseconds
    update: float
    busy: float  # share of the time in which the GPU works
    distinct: float  # observations of a rollout, relative to its samples


def engine_for(
    num_envs: int, minibatches: int, hidden: tuple[int, ...], precision: str, policies: int, red: Red = "meander"
) -> CudaEngine:
    """An engine with K = 4 and 100 steps per update."""
    config = PPOConfig(num_envs=num_envs, rollout_steps=100, minibatches=minibatches, hidden=hidden, learning_rate=1e-3)
    seeds = list(range(policies))
    env = Cage2(policies * num_envs, red=red, seed=seeds)
    env.reset()
    return cuda_engine(env, config, seeds, _GPU, precision)


def training_rate(engine: CudaEngine, updates: int = 10) -> Rate:
    """The speed of rollouts and updates; the first three, which compile and record graphs, do not count."""
    for _ in range(3):
        engine.collect()
        engine.update(0.0)
    laps, device, distinct = [], 0.0, 0.0
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(updates):
        start = time.perf_counter()
        engine.collect()
        middle = time.perf_counter()
        distinct = float(engine.update(0.0)["distinct_observations"].mean())
        laps.append((middle - start, time.perf_counter() - middle))
    torch.cuda.synchronize()
    for graph in engine.recorded().values():
        marks[0].record()
        graph.replay()
        marks[1].record()
        torch.cuda.synchronize()
        device += marks[0].elapsed_time(marks[1]) / 1000
    rollout, update = (statistics.median(column) for column in zip(*laps, strict=True))
    steps = engine.games.num_envs * engine.config.rollout_steps
    return Rate(steps / (rollout + update), 1000 * rollout, 1000 * update, device / (rollout + update), distinct)


def _training(options: Options) -> list[dict[str, Any]]:
    print("\nPPO end to end, K = 4, 100 steps per update, Meander; median of 10 updates, of a fresh policy and later")
    print(f"{'policies × environments':>24}{'networks':>10}{'products':>10}{'updates':>9}{'M steps/s':>11}", end="")
    print(f"{'distinct':>10}{'rollout ms':>12}{'update ms':>11}{'GPU busy':>10}")
    found = []
    for envs, minibatches, hidden, policies, later in _SHAPES:
        for precision in ("fp32", "tf32", "bf16"):
            engine = engine_for(envs, minibatches, hidden, precision, policies)
            for before in (0, later):
                for _ in range(before):
                    engine.collect()
                    engine.update(0.0)
                got, shape = training_rate(engine), f"{policies} × {envs:,}"
                print(f"{shape:>24}{'-'.join(map(str, hidden)):>10}{precision:>10}{before + 13:>9}", end="")
                print(f"{got.steps / 1e6:>11.1f}{got.distinct:>10.2%}", end="")
                print(f"{got.rollout:>12.2f}{got.update:>11.2f}{got.busy:>10.0%}", flush=True)
                sizes = {"policies": policies, "envs": envs, "hidden": hidden, "precision": precision}
                found.append(sizes | {"updates": before + 13, **got._asdict()})
    print("published, on one GPU, in what we could find; other games and networks:")
    for name, figure in _PUBLISHED:
        print(f"  {name}: {figure}")
    return found


def _episodes(options: Options) -> dict[str, float]:
    """Time of 100,000 episodes."""
    engine = engine_for(50_000, 20, (64, 64), "bf16", 1)
    for _ in range(3):
        engine.collect()
        engine.update(0.0)
    start = time.perf_counter()
    for _ in range(2):
        engine.collect()
        engine.update(0.0)
    seconds = time.perf_counter() - start
    print(f"\n100,000 episodes, 10,000,000 steps, 50,000 environments, bf16: {seconds:.3f} s", flush=True)
    return {"seconds": seconds}


# Learning: held-out scores against time.


class Learnt(NamedTuple):
    """What a training reached."""

    seconds: float  # of training, once kernels are compiled
    rate: float
    scores: list[float]  # on held-out games, one per policy


def _learnt(red: Red, num_envs: int, minibatches: int, rate: float, episodes: int, policies: int = 5) -> Learnt:
    """Trains the recipe of a Red with another batch, all seeds side by side, and scores each on held-out games."""
    config = from_dict(Cage2Config, recipe(f"cage2-{red}"))
    ppo = replace(config.ppo, num_envs=num_envs, minibatches=minibatches, learning_rate=rate)
    config = replace(
        config, ppo=ppo, episodes=episodes, policies=policies, seed=0, device="cuda", checkpoint_every=0
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder, "run"), Cage2Config)
        with run.locked():
            outcome = Training(run, config, quiet=True).train()
        saved, task = load_policy(run.path), config.task
        cells = [
            next(iter(score(saved.runner(p), task, [red], [task.horizon], 1000, seed=config.seed)))
            for p in range(policies)
        ]
    return Learnt(outcome.seconds, outcome.steps / outcome.seconds, [cell.mean for cell in cells])


def _curves(red: Red) -> Iterator[tuple[str, Learnt]]:
    """Held-out scores against time for several batches."""
    base = from_dict(Cage2Config, recipe(f"cage2-{red}")).ppo
    for times, episodes in ((1, 100_000), (4, 100_000), (4, 400_000), (16, 1_600_000)):
        n = base.num_envs * times
        found = _learnt(red, n, base.minibatches, min(base.learning_rate * math.sqrt(times), 8e-3), episodes)
        yield f"{n} environments, {episodes:,} episodes", found


def _learning(options: Options) -> dict[str, Any]:
    print("\nlearning: 5 seeds side by side, greedy on 1,000 held-out games of 100 steps each")
    found: dict[str, Any] = {}
    for red in options.reds:
        for name, got in _curves(red):
            scores = " ".join(f"{x:.2f}" for x in got.scores)
            print(f"  {red:<8} {name:<42}{got.seconds:>7.1f} s  mean {np.mean(got.scores):.2f}  ({scores})", flush=True)
            found[f"{red}, {name}"] = got._asdict()
    return found


# Workflows: all orders at once.


def _search_seconds(red: Red, rounds: int, episodes: int = 2500) -> tuple[float, float, int]:
    """All 120 orders, so many trainings each, as one population: seconds, of these compiling, and trainings."""
    each = episodes // 50
    config = SearchConfig(
        task=Cage2Task(red=red), searcher="exhaustive", rounds=rounds, max_episodes=each, confirm=0, controls=False,
        total_episodes=120 * rounds * 50 * each, device="cuda", checkpoint_every=10**6,
    )  # fmt: skip
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder, "run"), SearchConfig)
        with run.locked():
            search = Search(run, config)
            prepared = time.perf_counter() - start
            while not search.done:
                for _ in search.advance():
                    pass
            search.close()
        return time.perf_counter() - start, prepared, len(search.results)


def _workflows(options: Options) -> dict[str, Any]:
    print(f"\nall 120 orders × {options.rounds} trainings × 2,500 episodes as one population")
    found, total = {}, 0.0
    for red in options.reds:
        seconds, prepared, trainings = _search_seconds(red, options.rounds)
        total += seconds
        steps = trainings * 250_000 / (seconds - prepared)
        print(f"  {red:<8} {trainings} trainings in {seconds:.1f} s, {prepared:.1f} of them preparing", end="")
        print(f"; {steps / 1e6:.1f} M steps/s with scores", flush=True)
        found[red] = {"seconds": seconds, "prepared": prepared, "trainings": trainings}
    print(f"  together {total:.1f} s")
    return found
