"""What each optimisation that the CAGE-2 workflow-search documents proposed is worth, switched on in turn.

The same training throughout: PPO with K = 4 on CAGE-2 against B_line, 64-64 networks, rollout and update. The first
rows host one game per process as the scripts did (our simulator in place of CybORG, so that hosting is what is
measured); then the batch simulator; then what can be done to the trainer.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from cavalcade.bench import peers
from cavalcade.bench.hosting import LoopHost, PipeHost, SharedHost
from cavalcade.bench.single_file import Trainer, single_file_ppo
from cavalcade.bench.train import our_trainer
from cavalcade.config import PPOConfig, TrainConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.ppo.threads import choose_threads, choose_torch_threads, use_threads

WORKERS = 16  # processes with an environment each; the scripts had 25 to 200
ENVS = 200


class Step(NamedTuple):
    """An optimisation, measured."""

    name: str
    claim: str  # what the documents said it was worth
    rate: float  # steps per second of training with it on
    against: float  # and without it


def _rate(update: Trainer, steps: int, seconds: float) -> float:
    """Steps per second, best of three."""
    update()
    best = 0.0
    for _ in range(3):
        done, start, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < seconds / 3:
            update()
            done += steps
            elapsed = time.perf_counter() - start
        best = max(best, done / elapsed)
    return best


def _hosted(make: Callable[[], PipeHost | SharedHost | LoopHost], seconds: float, workers: int) -> float:
    host = make()
    try:
        return _rate(single_file_ppo(host), workers * 100, seconds)
    finally:
        host.close()


def _batch(n: int = ENVS) -> peers.BatchGames:
    return peers.BatchGames(Cage2(n, dtype="float32"))


def _logging(update: Trainer, rows_at_once: int, episodes: int) -> Trainer:
    """An update followed by a CSV row per episode, opened and written so many rows at a time."""
    folder = tempfile.mkdtemp()
    path = Path(folder, "log.csv")

    def logged() -> None:
        update()
        for first in range(0, episodes, rows_at_once):
            with path.open("a") as file:
                rows = range(first, min(first + rows_at_once, episodes))
                file.write("".join(f"{i},defender>user,episode,-14.5,0.5,20\n" for i in rows))

    return logged


def measure(seconds: float, workers: int = WORKERS) -> Iterator[Step]:
    """One optimisation after the other."""
    torch.set_num_threads(1)
    states = _hosted(lambda: PipeHost(workers, true_states=True), seconds, workers)
    yield Step("pipes, true state asked for twice per step", "1.1 episodes/s, the state to mend", states, states)
    pipes = _hosted(lambda: PipeHost(workers), seconds, workers)
    yield Step("no true states over the pipe", "3×", pipes, states)
    shared = _hosted(lambda: SharedHost(workers), seconds, workers)
    yield Step("shared memory instead of pipes", "17×", shared, pipes)
    loop = _hosted(lambda: LoopHost(workers), seconds, workers)
    yield Step("all environments in one process", "2.2× over shared memory", loop, shared)
    same = _rate(single_file_ppo(_batch(workers)), workers * 100, seconds)
    yield Step("batch simulator, as many environments", "", same, loop)
    torch.set_num_threads(threads := choose_torch_threads())
    batch = _rate(single_file_ppo(_batch()), ENVS * 100, seconds)
    yield Step(f"{ENVS} environments instead of {workers}", "if memory allows", batch, same)
    often = _rate(single_file_ppo(_batch(), steps=50), ENVS * 50, seconds)
    yield Step("update every 50 steps instead of 100", "1.1–1.15×", often, batch)
    single = _rate(_logging(single_file_ppo(_batch()), 1, ENVS), ENVS * 100, seconds)
    bundled = _rate(_logging(single_file_ppo(_batch()), 100, ENVS), ENVS * 100, seconds)
    yield Step("logging 100 rows at a time instead of each", "1.05–1.1×", bundled, single)
    script = _rate(single_file_ppo(_batch(), scripted=True), ENVS * 100, seconds)
    yield Step("TorchScript networks", "1.15–1.25×", script, batch)
    compiled = _rate(single_file_ppo(_batch(), compiled=True), ENVS * 100, seconds)
    yield Step("torch.compile", "", compiled, batch)
    small = _rate(single_file_ppo(_batch(), hidden=32), ENVS * 100, seconds)
    yield Step("networks of 32-32 instead of 64-64 (changes learning)", "1.1–1.2×", small, batch)
    few = _rate(single_file_ppo(_batch(), epochs=2), ENVS * 100, seconds)
    yield Step("K = 2 instead of 4 (changes learning)", "advised against", few, batch)
    torch.set_num_threads(1)
    ours = choose_threads()
    use_threads(ours)
    shape = PPOConfig(num_envs=ENVS, minibatches=4)
    plain = _rate(our_trainer(TrainConfig(ppo=replace(shape, rows="plain")), ours), ENVS * 100, seconds)
    yield Step(f"compiled learner, {ours} threads, instead of torch on {threads}", "", plain, batch)
    distinct = _rate(our_trainer(TrainConfig(ppo=replace(shape, rows="distinct")), ours), ENVS * 100, seconds)
    yield Step("distinct rows", "", distinct, plain)
