"""Compares ways to train a CAGE-2 defender: several seeds each, on validation games.

    python benchmarks/defender_study.py RECIPE "SETTINGS" ["SETTINGS" …] [--policies 6] [--episodes 1000000]

SETTINGS are those of `cavalcade train cage2`, one string per variant: "critic=true-state hidden=128,128" ("" for the
recipe as it is; init=RUN starts from trained weights). Prints, for each, seconds of training, the score of every seed
by the objective of its training on games that neither training nor official scores use, and the parts of both Reds.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from benchmarks.model_zoo import validation_returns

from cavalcade import load_policy, train


def settings_of(text: str) -> dict[str, Any]:
    """Settings by name: numbers, words, and lists with commas."""
    found = {}
    for name, given in (part.split("=", 1) for part in text.split()):
        values = [yaml.safe_load(value) for value in given.split(",")]
        found[name] = tuple(values) if "," in given or name in ("extras", "hidden") else values[0]
    return found


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
        began, sizes = time.perf_counter(), {"policies": given.policies, "episodes": given.episodes}
        train("cage2", run=run, recipe=given.recipe, progress=False, **sizes | settings_of(options))
        seconds = time.perf_counter() - began
        returns = validation_returns(load_policy(run))
        totals = sum(returns.values())
        order = np.argsort(-totals)
        scores = f"mean {totals.mean():.2f}, best {totals.max():.2f}"
        print(f"{given.recipe} {options or '(as it is)'}: {seconds:.0f} s, {scores}")
        for name, values in {"total": totals, **returns}.items():
            print(f"  {name:<8}", " ".join(f"{x:.2f}" for x in values[order]), flush=True)


if __name__ == "__main__":
    main()
