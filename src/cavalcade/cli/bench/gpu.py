"""How fast the simulator, training and search are on a GPU."""

import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numba import cuda

from cavalcade.config import Cage2Task, PPOConfig, SearchConfig, TrainConfig
from cavalcade.cuda import check_device
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cuda import CudaGames
from cavalcade.plain import from_dict
from cavalcade.ppo.resident.learner import ResidentLearner
from cavalcade.ppo.resident.make import resident_learner
from cavalcade.presets import recipe
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policy import load_policy
from cavalcade.runs.scoring import score
from cavalcade.runs.training import Training
from cavalcade.search.engine import Search

_STEPS, _ROUNDS = 50, 15
_GPU = torch.device("cuda")


def simulator(num_envs: int, red: str) -> float:
    """Steps per second, median of several replays."""
    check_device()
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


class Rate(NamedTuple):
    """How fast a training is."""

    steps: float  # per second, median of updates
    rollout: float  # milliseconds
    update: float
    busy: float  # share of the time in which the GPU works


def learner(num_envs: int, minibatches: int, hidden: tuple[int, ...], precision: str, policies: int) -> ResidentLearner:
    """A learner on Meander, K = 4, 100 steps per update."""
    config = PPOConfig(num_envs=num_envs, update_steps=100, minibatches=minibatches, hidden=hidden, learning_rate=1e-3)
    seeds = list(range(policies))
    env = Cage2(policies * num_envs, red="meander", seed=seeds)
    env.reset()
    return resident_learner(env, config, seeds, _GPU, precision)


def training_rate(one: ResidentLearner, updates: int = 10) -> Rate:
    """The speed of rollouts and updates; the first ones, which compile and record graphs, do not count."""
    check_device()
    for _ in range(3):
        one.collect()
        one.update(0.0)
    laps, device = [], 0.0
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    for _ in range(updates):
        start = time.perf_counter()
        marks[0].record()
        one.collect()
        middle = time.perf_counter()
        marks[1].record()
        one.update(0.0)
        laps.append((middle - start, time.perf_counter() - middle))
    torch.cuda.synchronize()
    for name in ("rollout", "update"):
        marks[0].record()
        one._graphs[name].replay()
        marks[1].record()
        torch.cuda.synchronize()
        device += marks[0].elapsed_time(marks[1]) / 1000
    rollout, update = (statistics.median(column) for column in zip(*laps, strict=True))
    steps = one.games.num_envs * one.config.update_steps
    return Rate(steps / (rollout + update), 1000 * rollout, 1000 * update, device / (rollout + update))


class Learnt(NamedTuple):
    """What a training reached."""

    seconds: float  # of training, once kernels are compiled
    rate: float
    scores: list[float]  # on held-out games, one per policy


def learning(
    red: str, num_envs: int, minibatches: int, rate: float, episodes: int, policies: int = 5, seed: int = 0
) -> Learnt:
    """Trains the recipe of a Red with another batch, all seeds side by side, and scores each on held-out games."""
    check_device()
    config = from_dict(TrainConfig, recipe(f"cage2-{red}"))
    sizes = {"num_envs": num_envs, "minibatches": minibatches, "learning_rate": rate}
    config = replace(
        config,
        ppo=replace(config.ppo, **sizes),
        episodes=episodes,
        policies=policies,
        seed=seed,
        device="cuda",
        checkpoint_every=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder, "run"))
        with run.locked():
            training = Training(run, config, quiet=True)
            outcome = training.train()
        saved, task = load_policy(run.path), config.task
        cells = [
            next(iter(score(saved.player(p), task, [red], [task.horizon], 1000, seed=config.seed)))
            for p in range(policies)
        ]
    return Learnt(outcome.seconds, outcome.steps / outcome.seconds, [cell.mean for cell in cells])


def workflows(red: str, rounds: int, episodes: int = 2500) -> tuple[float, float, int]:
    """All 120 orders, so many trainings each, as one population: seconds, of these compiling, and trainings."""
    check_device()
    each = episodes // 50
    config = SearchConfig(
        task=Cage2Task(red=red), searcher="exhaustive", rounds=rounds, max_episodes=each, confirm=0, controls=False,  # pyright: ignore
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


def curves(red: str) -> Iterator[tuple[str, Learnt]]:
    """Held-out scores against time for several batches."""
    base = from_dict(TrainConfig, recipe(f"cage2-{red}")).ppo
    for times, episodes in ((1, 100_000), (4, 100_000), (4, 400_000), (16, 1_600_000)):
        n = base.num_envs * times
        found = learning(red, n, base.minibatches, min(base.learning_rate * math.sqrt(times), 8e-3), episodes)
        yield f"{n} environments, {episodes:,} episodes", found
