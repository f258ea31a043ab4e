"""Compares ways to train a CAGE-2 defender: several seeds each, on validation games.

    python benchmarks/defender_study.py RECIPE "OPTIONS" ["OPTIONS" …] [--policies 6] [--episodes 1000000] [--runs DIR]

OPTIONS are options of `cavalcade train cage2`, one string per variant ("" for the recipe as it is). Prints, for each,
seconds of training, the score of every seed by the objective of its training on games that neither training nor official
scores use, and the parts of both Reds.
"""

import argparse
import shlex
import time
from pathlib import Path

import numpy as np

from benchmarks.model_zoo import validation_returns
from cavalcade import load_policy
from cavalcade.cli import main as cavalcade


def train(recipe: str, options: str, policies: int, episodes: int, run: Path) -> float:
    """Trains a variant; returns seconds, compilation and scores included."""
    sizes = ["--policies", str(policies), "--episodes", str(episodes), "--run", str(run)]
    began = time.perf_counter()
    cavalcade(["train", "cage2", "--recipe", recipe, *sizes, *shlex.split(options)])
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--policies", type=int, default=6)
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    given = parser.parse_args()
    for i, options in enumerate(given.variants):
        run = given.runs / f"study-{given.recipe}-{i}"
        seconds = train(given.recipe, options, given.policies, given.episodes, run)
        returns = validation_returns(load_policy(run))
        totals = sum(returns.values())
        order = np.argsort(-totals)
        print(f"{given.recipe} {options or '(as it is)'}: {seconds:.0f} s, mean {totals.mean():.2f}, best {totals.max():.2f}")
        for name, values in {"total": totals, **returns}.items():
            print(f"  {name:<8}", " ".join(f"{x:.2f}" for x in values[order]), flush=True)


if __name__ == "__main__":
    main()
