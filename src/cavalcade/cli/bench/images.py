"""`cavalcade bench images`: speed of training on images, beside Stable-Baselines3's CnnPolicy.

Both train the same networks on the same game with the same sizes, in turns. The bound is the speed of a trainer that
does nothing but these networks' arithmetic, at the speed of a large matrix product of torch.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.config.encoder import EncoderConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.device import native_bf16
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.core.images import ImageLayout
from cavalcade.core.threads import cores
from cavalcade.envs import CATCH_ID
from cavalcade.policy.cnn import CnnSpec
from cavalcade.runs.waiting import waiting
from cavalcade.targets.base import Setup
from cavalcade.targets.gym import GymConfig, GymTarget
from cavalcade.tuning import machine

_SIZES = {"16": {"cells": 16, "zoom": 1}, "84": {"cells": 21, "zoom": 4}}
PPO = PPOConfig(num_envs=32, rollout_steps=64, minibatches=8, epochs=4, learning_rate=1e-3)
Update = Callable[[], int]  # a rollout and an update; returns its steps


@dataclass(frozen=True)
class Options:
    """Trains on the game Catch, as images of 16 × 16 and of 84 × 84 pixels; prints steps/s and the ratio."""

    sizes: tuple[Literal["16", "84"], ...] = ("16", "84")
    """Height and width of the images in pixels."""
    seconds: float = 10.0
    """Time for each trainer and round."""
    rounds: int = 3
    """Rounds; the best of each trainer counts."""
    threads: int = 0
    """Threads of torch; 0 for one per core."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    options = parse(Options, args, "bench images")
    at_least("rounds", options.rounds, 1)
    at_least("threads", options.threads, 0)
    check_seconds(options.seconds)
    check_folder("json", options.json)
    if not find_spec("stable_baselines3"):
        raise ConfigError("Stable-Baselines3 is not installed: pip install 'cavalcade[sb3]'")
    print(machine.line())
    figures: dict[str, Any] = {"machine": machine.describe()}
    for size in options.sizes:
        with waiting(f"training on {size} × {size} images"):
            figures[size] = found = _speeds(_SIZES[size], options) | bounds(_SIZES[size], options)
        print(
            f"\n{size} × {size} × 3, {PPO.num_envs} environments × {PPO.rollout_steps} steps, {PPO.epochs} epochs × "
            f"{PPO.minibatches} minibatches; steps/s, best of {options.rounds}, in turns"
        )
        for name, rate in found.items():
            print(f"  {name:<30}{rate:>10,.0f}{rate / found[_PEER]:>8.2f}×", flush=True)
    write_statistics(options.json, figures)
    return 0


_PEER = "Stable-Baselines3, CnnPolicy"
_MATRIX = 1024  # rows and columns of the matrices of the bound


def bounds(game: dict[str, int], options: Options) -> dict[str, float]:
    """Steps per second if only convolutions and products were computed, as fast as a matrix product."""
    torch.set_num_threads(options.threads or cores())
    pixels = game["cells"] * game["zoom"]
    spec = CnnSpec(ImageLayout((pixels, pixels, 3)), 3)
    operations = spec.forward_operations + PPO.epochs * spec.gradient_operations
    kinds = {"fp32": torch.float32} | ({"bf16": torch.bfloat16} if native_bf16() else {})
    return {f"bound, {name}": product_rate(kind) / operations for name, kind in kinds.items()}


def product_rate(dtype: torch.dtype, rounds: int = 20) -> float:
    """Floating-point operations per second of a large matrix product; the best round."""
    a, b = (torch.randn(_MATRIX, _MATRIX).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return 2 * _MATRIX**3 / best


def _speeds(game: dict[str, int], options: Options) -> dict[str, float]:
    """Steps per second of all trainers; the best round of each."""
    threads = options.threads or cores()
    made = {_PEER: partial(peer, game, threads, PPO), "cavalcade, fp32": partial(ours, game, "fp32", threads, PPO)}
    if native_bf16():
        made["cavalcade, bf16"] = partial(ours, game, "bf16", threads, PPO)
    best = dict.fromkeys(made, 0.0)
    with ExitStack() as stack:
        trainers = {name: stack.enter_context(closing(Trainer(make))) for name, make in made.items()}
        for turn in range(options.rounds + 1):
            for name, trainer in trainers.items():
                rate = trainer.rate(options.seconds if turn else 0.0)
                if turn:  # the first warms up and compiles
                    best[name] = max(best[name], rate)
    return best


class Trainer:
    """A trainer in a process of its own, as its users run it: threads of torch and OpenMP are shared by a process."""

    def __init__(self, make: Callable[[], tuple[Update, Callable[[], None]]]):
        context = get_context("spawn")
        self._answers, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(make, theirs))
        self._process.start()
        theirs.close()

    def rate(self, seconds: float) -> float:
        """Steps per second in so many seconds."""
        try:
            self._answers.send(seconds)
            return self._answers.recv()
        except (EOFError, OSError):
            raise ConfigError("a trainer ended early; what it printed is above") from None

    def close(self) -> None:
        self._answers.close()
        self._process.join()


def _serve(make: Callable[[], tuple[Update, Callable[[], None]]], asked: Connection) -> None:
    """The trainer's side: answers until nobody asks."""
    update, close = make()
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            asked.send(rate_of(update, asked.recv()))
    close()


def rate_of(update: Update, seconds: float) -> float:
    """Steps per second of whole updates until a time has passed."""
    steps, start, elapsed = 0, time.perf_counter(), 0.0
    while not steps or elapsed < seconds:
        steps += update()
        elapsed = time.perf_counter() - start
    return steps / elapsed


def ours(
    game: dict[str, int], precision: Literal["fp32", "bf16"], threads: int, ppo: PPOConfig
) -> tuple[Update, Callable[[], None]]:
    """A training of ours, with environments in workers as by default."""
    options = tuple(f"{name}={value}" for name, value in game.items())
    config = GymConfig(
        target=f"gym:{CATCH_ID}", ppo=ppo, env_options=options, encoding=EncoderConfig(precision=precision)
    )
    engine = GymTarget().prepare(config, Setup(threads=threads)).engine
    engine.env.reset()

    def update() -> int:
        engine.collect()
        engine.update(0.0)
        return ppo.num_envs * ppo.rollout_steps

    return update, engine.env.close


def peer(game: dict[str, int], threads: int, ppo: PPOConfig) -> tuple[Update, Callable[[], None]]:
    """PPO of Stable-Baselines3 with the same network: its own for large images, for small ones our layers."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(CATCH_ID, ppo.num_envs, seed=0, env_kwargs=game)
    samples = ppo.num_envs * ppo.rollout_steps
    torch.set_num_threads(threads)
    model = stable_baselines3.PPO(
        "CnnPolicy", env, n_steps=ppo.rollout_steps, batch_size=samples // ppo.minibatches, n_epochs=ppo.epochs,
        learning_rate=ppo.learning_rate, ent_coef=ppo.entropy_coef, device="cpu", seed=0,
        policy_kwargs={} if game["zoom"] > 1 else {"features_extractor_class": _small_extractor()},
    )  # fmt: skip

    def update() -> int:
        model.learn(samples, reset_num_timesteps=False)
        return samples

    return update, env.close


def _small_extractor() -> type:
    """The trunk of `CnnSpec` for small images, as Stable-Baselines3 wants it."""
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Small(BaseFeaturesExtractor):
        def __init__(self, observation_space: Any):
            channels, height, width = observation_space.shape
            spec = CnnSpec(ImageLayout((height, width, channels)), 1)
            features, flat = spec.shapes["dense.weight"]
            super().__init__(observation_space, features)
            layers: list[nn.Module] = []
            for one in spec.convolutions:
                layers += [nn.Conv2d(channels, one.channels, one.kernel, one.stride), nn.ReLU()]
                channels = one.channels
            self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, features), nn.ReLU())

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return self.layers(observations)

    return Small
