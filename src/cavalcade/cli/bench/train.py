"""`cavalcade bench train`: how fast and how well policies train.

Beside other trainers (a single-file PPO and Stable-Baselines3), as a population, and by the shipped recipes. All play
our simulator, so that the trainer is what is compared. The others mask no actions, which is in their favour.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import torch

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.bench.single_file import BatchGames, Trainer, single_file_ppo
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.config import PPOConfig
from cavalcade.config.io import from_dict
from cavalcade.config.presets import recipe
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.threads import use_threads
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.threads import choose_threads, choose_torch_threads
from cavalcade.ppo.trainer import train
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.policies import load_policy
from cavalcade.runs.training import SilentRecorder, Training
from cavalcade.runs.waiting import PREPARING, waiting
from cavalcade.targets import target_named
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.cage2.scoring import score
from cavalcade.tuning import machine

Red = Literal["bline", "meander"]
_REDS: tuple[Red, ...] = ("bline", "meander")
ENVS, STEPS, EPOCHS, MINIBATCHES = 200, 100, 4, 4
_SAME_SHAPE = PPOConfig(num_envs=ENVS, rollout_steps=STEPS, minibatches=MINIBATCHES)
_PARTS = ("speed", "population", "recipes", "overhead")


@dataclass(frozen=True)
class Options:
    """Trains CAGE-2 defenders in several ways, and prints speeds and held-out scores. Takes about ten minutes."""

    parts: tuple[Literal["speed", "population", "recipes", "overhead"], ...] = _PARTS
    """speed: beside other trainers; population: many policies at once; recipes: the shipped ones, every seed printed;
    overhead: what logs and checkpoints cost."""
    seconds: float = 10.0
    """Time for each trainer."""
    seeds: int = 5
    """Seeds of each recipe."""
    episodes: tuple[int, ...] = (20_000, 100_000)
    """Episodes that the recipes get."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints each part as soon as it is measured."""
    options = parse(Options, args, "bench train")
    at_least("seeds", options.seeds, 1)
    check_seconds(options.seconds)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe()}
    print(machine.line())
    measure = {"speed": _speed, "population": _population, "recipes": _recipes, "overhead": _overhead}
    for part in options.parts:
        figures[part] = measure[part](options)
    write_statistics(options.json, figures)
    return 0


# Speed: trainers of the same shape, in turns.


def _single_file(red: Red, *, compiled: bool) -> Trainer:
    """The single-file PPO on our simulator."""
    games = BatchGames(Cage2(ENVS, red=red, dtype="float32"))
    return single_file_ppo(games, steps=STEPS, epochs=EPOCHS, minibatches=MINIBATCHES, compiled=compiled)


def stable_baselines3(red: Red) -> Trainer:
    """PPO of Stable-Baselines3."""
    try:
        from stable_baselines3 import PPO

        from cavalcade.envs.sb3 import Sb3VecEnv
    except ImportError:
        raise ConfigError("Stable-Baselines3 is not installed: pip install 'cavalcade[sb3]'") from None
    env = Sb3VecEnv(Cage2(ENVS, red=red, dtype="float32"))
    size = STEPS * ENVS // MINIBATCHES
    model = PPO(
        "MlpPolicy", env, n_steps=STEPS, batch_size=size, n_epochs=EPOCHS, ent_coef=0.01, device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}}, seed=0,
    )  # fmt: skip
    return lambda: model.learn(STEPS * ENVS, reset_num_timesteps=False) and None


def our_trainer(config: Cage2Config, threads: int) -> Trainer:
    """An update of an engine of ours."""
    env = target_named(config.target).make_env(config, threads)
    engine, _ = make_engine(env, config.ppo, config.seeds)
    env.reset()

    def update() -> None:
        engine.collect()
        engine.update(0.0)

    return update


def _contenders(red: Red) -> dict[str, tuple[Trainer, int, int]]:
    """Trainers of the same shape by name, with the threads of torch and of compiled kernels that suit them."""
    torch_threads, threads = choose_torch_threads(), choose_threads()
    found = {
        "single-file PPO": (_single_file(red, compiled=False), torch_threads, 1),
        "single-file PPO, torch.compile": (_single_file(red, compiled=True), torch_threads, 1),
    }
    with suppress(ConfigError):
        found["Stable-Baselines3"] = (stable_baselines3(red), torch_threads, 1)
    same: dict[str, PPOConfig] = {
        "cavalcade, torch engine": replace(_SAME_SHAPE, engine="torch"),
        "cavalcade, dedup off, 1 thread": replace(_SAME_SHAPE, dedup="off"),
        "cavalcade, dedup off": replace(_SAME_SHAPE, dedup="off"),
        "cavalcade, dedup on": replace(_SAME_SHAPE, dedup="on"),
    }
    for name, ppo in same.items():
        ours = 1 if "1 thread" in name else threads
        trainer = our_trainer(Cage2Config(task=Cage2Task(red=red), ppo=ppo), ours)
        found[name] = (trainer, torch_threads if "torch" in name else 1, ours)
    return found


def _speeds(red: Red, seconds: float, rounds: int = 5) -> dict[str, float]:
    """Steps per second of all trainers, taking turns; the best round of each."""
    trainers = _contenders(red)
    best = dict.fromkeys(trainers, 0.0)
    for turn in range(rounds + 1):
        for name, (update, torch_threads, threads) in trainers.items():
            torch.set_num_threads(torch_threads)
            numba.set_num_threads(threads)
            updates, elapsed = _updates(update, seconds / rounds)
            if turn:  # the first warms up and compiles
                best[name] = max(best[name], updates * ENVS * STEPS / elapsed)
    return best


def _updates(update: Trainer, seconds: float) -> tuple[int, float]:
    """Updates until a time has passed, and the time that they took."""
    updates, start, elapsed = 0, time.perf_counter(), 0.0
    while elapsed < seconds:
        update()
        updates += 1
        elapsed = time.perf_counter() - start
    return updates, elapsed


def _speed(options: Options) -> dict[str, Any]:
    figures = {}
    print(
        "\nsame shape: 200 environments × 100 steps, 4 epochs × 4 minibatches, 64-64; steps/s, best of five, in turns"
    )
    for red in _REDS:
        with waiting(f"measuring trainers against {red}"):
            figures[red] = found = _speeds(red, options.seconds)
        theirs = {name: rate for name, rate in found.items() if not name.startswith("cavalcade")}
        eager = max(rate for name, rate in theirs.items() if "compile" not in name)
        best = max(theirs.values())
        print(f"  {red:<34}{'steps/s':>12}{'× best peer':>14}{'× best eager':>14}")
        for name, rate in found.items():
            print(f"    {name:<32}{rate:>12,.0f}{rate / best:>14.2f}{rate / eager:>14.2f}", flush=True)
    return figures


# Population: many policies at once.


def _population_speeds(seconds: float, policies: int = 120, rounds: int = 3) -> dict[int, float]:
    """Steps per second of one policy and of many at once, without dedup, with 200 and 20 environments each."""
    threads = choose_threads()
    use_threads(threads)
    sizes = {1: 200, policies: 20}
    trainers = {
        p: our_trainer(Cage2Config(policies=p, ppo=PPOConfig(num_envs=n, dedup="off")), threads)
        for p, n in sizes.items()
    }
    best = dict.fromkeys(trainers, 0.0)
    for turn in range(rounds + 1):
        for p, update in trainers.items():
            updates, elapsed = _updates(update, seconds / rounds)
            if turn:
                best[p] = max(best[p], updates * p * sizes[p] * 100 / elapsed)
    return best


def _population(options: Options) -> dict[str, Any]:
    with waiting(PREPARING):
        found = _population_speeds(options.seconds)
    (one, rate), (many, total) = found.items()
    print(f"\npopulation, dedup off: P = {one} {rate:,.0f} steps/s, P = {many} {total:,.0f}: {total / rate:.2f}×")
    return {str(p): rate for p, rate in found.items()}


# Recipes: the shipped ones, every seed.


def _recipe_rows(name: str, episodes: int, seeds: range, heldout: int = 1000) -> Iterator[dict[str, Any]]:
    """Trains by a recipe, one run per seed with its logs and checkpoints, and scores each on held-out games."""
    for seed in seeds:
        config = replace(from_dict(Cage2Config, recipe(name)), episodes=episodes, seed=seed, device="cpu")
        with tempfile.TemporaryDirectory() as folder:
            run = RunDirectory(Path(folder, "run"), Cage2Config)
            with run.locked():
                outcome = Training(run, config, quiet=True).train()
            if not outcome.finished:
                raise KeyboardInterrupt
            red, horizon = config.task.red, config.task.horizon
            (cell,) = score(load_policy(run.path).runner(0), config.task, [red], [horizon], heldout, seed=seed)
        rate = outcome.steps / outcome.seconds
        figures = {"steps_per_second": rate, "heldout": cell.mean, "interval": cell.interval}
        yield {"recipe": name, "episodes": episodes, "seed": seed, "seconds": outcome.seconds} | figures


def _recipes(options: Options) -> list[dict[str, Any]]:
    rows = []
    print("\nrecipes, logs and checkpoints on; held-out greedy return over 1,000 games of 100 steps, revision head")
    for red in _REDS:
        for episodes in options.episodes:
            here = []
            for row in _recipe_rows(f"cage2-{red}", episodes, range(options.seeds)):
                here.append(row)
                print(
                    f"  {row['recipe']:<14}{episodes:>8,} episodes  seed {row['seed']}  {row['seconds']:6.1f} s  "
                    f"{row['steps_per_second']:>9,.0f} steps/s  {row['heldout']:7.2f} ± {row['interval']:.2f}",
                    flush=True,
                )
            means = np.array([row["heldout"] for row in here])
            error = means.std(ddof=1) / len(means) ** 0.5 if len(means) > 1 else 0.0
            longest = max(row["seconds"] for row in here)
            summary = f"{means.mean():.2f} ± {error:.2f} (s.e.), {longest:.1f} s at most"
            print(f"  {'mean':<14}{episodes:>8,} episodes  {summary}")
            rows += here
    return rows


# Overhead: logs and checkpoints.


def _overhead_seconds(name: str, episodes: int, rounds: int = 3) -> dict[str, float]:
    """Seconds of the same training with and without logs and checkpoints, taking turns; the best of each."""
    config = replace(from_dict(Cage2Config, recipe(name)), episodes=episodes, device="cpu")
    best = {"recorded": float("inf"), "bare": float("inf")}
    for turn in range(rounds + 1):
        for kind in best:
            with tempfile.TemporaryDirectory() as folder:
                run = RunDirectory(Path(folder, "run"), Cage2Config)
                with run.locked():
                    training = Training(run, config, quiet=True)
                    start = time.perf_counter()
                    if kind == "recorded":
                        if not training.train().finished:
                            raise KeyboardInterrupt
                    else:
                        train(training.learner, config.updates, SilentRecorder())
                    seconds = time.perf_counter() - start
            if turn:
                best[kind] = min(best[kind], seconds)
    return best


def _overhead(options: Options) -> dict[str, float]:
    with waiting("measuring logs and checkpoints"):
        found = _overhead_seconds("cage2-bline", options.episodes[-1])
    share = found["recorded"] / found["bare"] - 1
    print(f"\nlogs and checkpoints: {found['recorded']:.2f} s with, {found['bare']:.2f} s without: {share:+.1%}")
    return found
