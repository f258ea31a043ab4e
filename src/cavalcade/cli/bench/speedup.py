"""`cavalcade bench speedup`: each optimisation that the CAGE-2 workflow-search documents proposed, switched on in turn.

The same training throughout: PPO with K = 4 on CAGE-2 against B_line, 64-64 networks, rollout and update. The first
rows host one game per process as the scripts did (our simulator in place of CybORG, so that hosting is what is
measured); then the batch simulator; then what can be done to the trainer.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.bench.hosting import Host, LoopHost, PipeHost, SharedHost
from cavalcade.cli.bench.single_file import BatchGames, Trainer, single_file_ppo
from cavalcade.cli.bench.train import our_trainer
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.threads import use_threads
from cavalcade.envs import CAGE2_ID
from cavalcade.envs.cage2 import Cage2
from cavalcade.ppo.threads import choose_threads, choose_torch_threads
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.tuning import machine
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source

_WORKERS = 16  # processes with an environment each; the scripts had 25 to 200
_ENVS = 200


@dataclass(frozen=True)
class Options:
    """Measures the optimisations one by one: claimed factor, measured factor."""

    seconds: float = 6.0
    """Time for each row."""
    workers: int = _WORKERS
    """Processes with an environment each, in the first rows."""
    shared_workers: tuple[int, ...] = (2, 8, 16)
    """Workers that share the environments of the later rows, a row each."""
    num_envs: int = _ENVS
    """Environments in the later rows."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints row by row."""
    options = parse(Options, args, "bench speedup")
    check_seconds(options.seconds)
    at_least("workers", options.workers, 1)
    at_least("num_envs", options.num_envs, 4)
    for count in options.shared_workers:
        if not 1 <= count <= options.num_envs:
            raise ConfigError(
                f"shared_workers has {count}; with {options.num_envs} environments it must be 1 to {options.num_envs}"
            )
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe(), "steps": []}
    print(machine.line())
    print("training steps/s (rollout and K = 4 update) against B_line\n")
    print(f"{'optimisation':<56}{'steps/s':>10}{'factor':>9}   claimed")
    for step in _measure(options.seconds, options.workers, options.num_envs, options.shared_workers):
        figures["steps"].append(step._asdict())
        print(f"{step.name:<56}{step.rate:>10,.0f}{step.rate / step.against:>8.2f}×   {step.claim}", flush=True)
    first, last = figures["steps"][0]["rate"], figures["steps"][-1]["rate"]
    print(f"\nfrom the first row to the last: {last / first:,.0f}×")
    write_statistics(options.json, figures)
    return 0


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


def _hosted(make: Callable[[], Host], seconds: float, workers: int) -> float:
    host = make()
    try:
        return _rate(single_file_ppo(host), workers * 100, seconds)
    finally:
        host.close()


def _several(num_envs: int, workers: int, backend: str, seconds: float) -> float:
    """With several environments per process, as `train --backend pipe|shared` hosts them."""
    source = gym_source(CAGE2_ID, {"dtype": "float32"})
    env = Hosted(source, num_envs, HostConfig(backend=backend, workers=workers))  # pyright: ignore[reportArgumentType]
    try:
        return _rate(single_file_ppo(BatchGames(env)), num_envs * 100, seconds)
    finally:
        env.close()


def _batch(n: int) -> BatchGames:
    return BatchGames(Cage2(n, dtype="float32"))


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


def _measure(seconds: float, workers: int, n: int, shared_workers: tuple[int, ...]) -> Iterator[Step]:
    """One optimisation after the other."""
    torch.set_num_threads(1)
    states = _hosted(lambda: PipeHost(workers, true_states=True), seconds, workers)
    yield Step("pipes, true state requested twice per step", "1.1 episodes/s, the baseline", states, states)
    pipes = _hosted(lambda: PipeHost(workers), seconds, workers)
    yield Step("no true states over the pipe", "3×", pipes, states)
    shared = _hosted(lambda: SharedHost(workers), seconds, workers)
    yield Step("shared memory instead of pipes", "17×", shared, pipes)
    loop = _hosted(lambda: LoopHost(workers), seconds, workers)
    yield Step("all environments in one process", "2.2× over shared memory", loop, shared)
    for count in shared_workers:
        several = _several(n, count, "pipe", seconds)
        name = f"shared memory, {n} environments on {count} workers"
        yield Step(name, "17×", _several(n, count, "shared", seconds), several)
    same = _rate(single_file_ppo(_batch(workers)), workers * 100, seconds)
    yield Step("batch simulator, as many environments", "", same, loop)
    torch.set_num_threads(threads := choose_torch_threads())
    batch = _rate(single_file_ppo(_batch(n)), n * 100, seconds)
    yield Step(f"{n} environments instead of {workers}", "if memory allows", batch, same)
    often = _rate(single_file_ppo(_batch(n), steps=50), n * 50, seconds)
    yield Step("update every 50 steps instead of 100", "1.1–1.15×", often, batch)
    single = _rate(_logging(single_file_ppo(_batch(n)), 1, n), n * 100, seconds)
    bundled = _rate(_logging(single_file_ppo(_batch(n)), 100, n), n * 100, seconds)
    yield Step("logging 100 rows at a time instead of each", "1.05–1.1×", bundled, single)
    script = _rate(single_file_ppo(_batch(n), scripted=True), n * 100, seconds)
    yield Step("TorchScript networks", "1.15–1.25×", script, batch)
    compiled = _rate(single_file_ppo(_batch(n), compiled=True), n * 100, seconds)
    yield Step("torch.compile", "", compiled, batch)
    small = _rate(single_file_ppo(_batch(n), hidden=32), n * 100, seconds)
    yield Step("networks of 32-32 instead of 64-64 (changes learning)", "1.1–1.2×", small, batch)
    twice = _rate(single_file_ppo(_batch(n), epochs=2), n * 100, seconds)
    yield Step("K = 2 instead of 4 (changes learning)", "advised against", twice, batch)
    torch.set_num_threads(1)
    ours = choose_threads()
    use_threads(ours)
    shape = PPOConfig(num_envs=n, minibatches=4)
    plain = _rate(our_trainer(Cage2Config(ppo=replace(shape, dedup="off")), ours), n * 100, seconds)
    yield Step(f"cpu engine, {ours} threads, instead of torch on {threads}", "", plain, batch)
    distinct = _rate(our_trainer(Cage2Config(ppo=replace(shape, dedup="on")), ours), n * 100, seconds)
    yield Step("deduplication", "", distinct, plain)
