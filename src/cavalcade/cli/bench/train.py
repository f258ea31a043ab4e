"""How fast and how well policies train: beside other trainers, as a population, by the shipped recipes."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numba
import torch
from numpy.typing import NDArray

from cavalcade.bench import peers
from cavalcade.config import Cage2Task, PPOConfig, TrainConfig
from cavalcade.errors import ConfigError
from cavalcade.plain import from_dict
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.rollout import Ended
from cavalcade.ppo.threads import choose_threads, choose_torch_threads, use_threads
from cavalcade.ppo.trainer import Trainee, train
from cavalcade.presets import recipe
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.environments import environment_for
from cavalcade.runs.policy import load_policy
from cavalcade.runs.scoring import score
from cavalcade.runs.training import Training

Red = Literal["bline", "meander"]
REDS: tuple[Red, ...] = ("bline", "meander")
_SAME_SHAPE = PPOConfig(num_envs=peers.ENVS, update_steps=peers.STEPS, minibatches=peers.MINIBATCHES)


def our_trainer(config: TrainConfig, threads: int) -> peers.Trainer:
    """An update of a learner of ours."""
    env = environment_for(config, threads)
    learner, _ = make_learner(env, config.ppo, config.seeds)
    env.reset()

    def update() -> None:
        learner.collect()
        learner.update(0.0)

    return update


def contenders(red: Red) -> dict[str, tuple[peers.Trainer, int, int]]:
    """Trainers of the same shape by name, with the threads of torch and of compiled kernels that suit them."""
    torch_threads, threads = choose_torch_threads(), choose_threads()
    found = {
        "single-file PPO": (peers.single_file(red, compiled=False), torch_threads, 1),
        "single-file PPO, torch.compile": (peers.single_file(red, compiled=True), torch_threads, 1),
    }
    with suppress(ConfigError):
        found["Stable-Baselines3"] = (peers.stable_baselines3(red), torch_threads, 1)
    for name, settings in (
        ("cavalcade, torch learner", {"learner": "torch"}),
        ("cavalcade, plain rows, 1 thread", {"rows": "plain"}),
        ("cavalcade, plain rows", {"rows": "plain"}),
        ("cavalcade, distinct rows", {"rows": "distinct"}),
    ):
        config = TrainConfig(task=Cage2Task(red=red), ppo=replace(_SAME_SHAPE, **settings))
        ours = 1 if "1 thread" in name else threads
        found[name] = (our_trainer(config, ours), torch_threads if "torch" in name else 1, ours)
    return found


def speeds(red: Red, seconds: float, rounds: int = 5) -> dict[str, float]:
    """Steps per second of all trainers, taking turns; the best round of each."""
    trainers = contenders(red)
    best = dict.fromkeys(trainers, 0.0)
    for turn in range(rounds + 1):
        for name, (update, torch_threads, threads) in trainers.items():
            torch.set_num_threads(torch_threads)
            numba.set_num_threads(threads)
            updates, start, elapsed = 0, time.perf_counter(), 0.0
            while elapsed < seconds / rounds:
                update()
                updates += 1
                elapsed = time.perf_counter() - start
            if turn:  # the first warms up and compiles
                best[name] = max(best[name], updates * peers.ENVS * peers.STEPS / elapsed)
    return best


def population(seconds: float, policies: int = 120, rounds: int = 3) -> dict[int, float]:
    """Steps per second of one policy and of many at once, in plain mode, with 200 and 20 environments each."""
    threads = choose_threads()
    use_threads(threads)
    sizes = {1: 200, policies: 20}
    trainers = {
        p: our_trainer(TrainConfig(policies=p, ppo=PPOConfig(num_envs=n, rows="plain")), threads)
        for p, n in sizes.items()
    }
    best = dict.fromkeys(trainers, 0.0)
    for turn in range(rounds + 1):
        for p, update in trainers.items():
            updates, start, elapsed = 0, time.perf_counter(), 0.0
            while elapsed < seconds / rounds:
                update()
                updates += 1
                elapsed = time.perf_counter() - start
            if turn:
                best[p] = max(best[p], updates * p * sizes[p] * 100 / elapsed)
    return best


def recipe_rows(name: str, episodes: int, seeds: range, heldout: int = 1000) -> Iterator[dict[str, Any]]:
    """Trains by a recipe, one run per seed with its logs and checkpoints, and scores each on held-out games."""
    for seed in seeds:
        config = replace(from_dict(TrainConfig, recipe(name)), episodes=episodes, seed=seed, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            run = RunDirectory(Path(folder, "run"))
            with run.locked():
                training = Training(run, config, quiet=True)
                outcome = training.train()
            if not outcome.finished:
                raise KeyboardInterrupt
            red, horizon = config.task.red, config.task.horizon
            (cell,) = score(load_policy(run.path).player(0), config.task, [red], [horizon], heldout, seed=seed)
        rate = outcome.steps / outcome.seconds
        figures = {"steps_per_second": rate, "heldout": cell.mean, "interval": cell.interval}
        yield {"recipe": name, "episodes": episodes, "seed": seed, "seconds": outcome.seconds} | figures


class _Nothing:
    """Records nothing."""

    stopping = False

    def record(self, learner: Trainee, episodes: Ended, metrics: dict[str, NDArray]) -> None:
        """Nothing."""


def overhead(name: str, episodes: int, rounds: int = 3) -> dict[str, float]:
    """Seconds of the same training with and without logs and checkpoints, taking turns; the best of each."""
    config = replace(from_dict(TrainConfig, recipe(name)), episodes=episodes, device="cpu")
    best = {"recorded": float("inf"), "bare": float("inf")}
    for turn in range(rounds + 1):
        for kind in best:
            with tempfile.TemporaryDirectory() as folder:
                run = RunDirectory(Path(folder, "run"))
                with run.locked():
                    training = Training(run, config, quiet=True)
                    start = time.perf_counter()
                    if kind == "recorded":
                        if not training.train().finished:
                            raise KeyboardInterrupt
                    else:
                        train(training.learner, config.updates, _Nothing())
                    seconds = time.perf_counter() - start
            if turn:
                best[kind] = min(best[kind], seconds)
    return best
