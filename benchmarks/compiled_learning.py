"""Does the compiled token policy learn as torch's modules do? MettaGrid on the CPU, preset laptop, several seeds.

python benchmarks/compiled_learning.py [--core none|lstm|gru] [--seeds 5] [--steps 3000000] [--workers 1]

Prints the reward per agent-step over the last fifth of each training, and the mean difference with its standard error.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from cavalcade.cli.targets import parse_target
from cavalcade.cli.train import Options
from cavalcade.core.threads import use_torch_threads
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.targets.base import Setup
from cavalcade.targets.mettagrid import TARGET


def learnt(core: str, steps: int, seed: int, compiled: bool) -> float:
    """Reward per agent-step over the last fifth of a training on one thread."""
    use_torch_threads(1)
    words = ["mettagrid", "--hardware", "laptop", "--device", "cpu", "--core", core, "--seed", str(seed)]
    config: Any = parse_target(Options, words, "train")[1].config
    engine = TARGET.prepare(config, Setup(threads=1)).engine
    assert isinstance(engine, RecurrentEngine)
    engine.env.reset(seed=config.seed)
    engine.policy.compiled = engine._fused_loss = compiled  # pyright: ignore
    updates, rewards = steps // config.ppo.batch_size, []
    for update in range(updates):
        engine.collect()
        rewards.append(float(engine.update(update / updates)["reward"][0]))
    return float(np.mean(rewards[-max(1, updates // 5) :]))


def main() -> None:
    """Trains both with each seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="none")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time, one process each")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as pool:
        found = [
            [pool.submit(learnt, given.core, given.steps, seed, compiled) for compiled in (True, False)]
            for seed in range(given.seeds)
        ]
        for seed, (mine, plain) in enumerate(found):
            print(f"seed {seed}: compiled {mine.result():.5f}, torch {plain.result():.5f}", flush=True)
    values = np.array([[one.result() for one in pair] for pair in found])
    for name, x in (("compiled", values[:, 0]), ("torch", values[:, 1]), ("difference", values[:, 0] - values[:, 1])):
        print(f"{name:<12}{x.mean():.5f} ± {x.std(ddof=1) / len(x) ** 0.5:.5f}")


if __name__ == "__main__":
    main()
