"""How long the game viewer takes to branch a game: 2 × 1,000 continuations of 100 steps.

    python benchmarks/watch_branch.py [RUN] [--repeat 20]

Branches in the first step of a game of RUN (by default of a fresh policy of the recipe's size, which need not be good);
prints the best and the median time. With --plain also without the cache of distinct observations, in turns. Measure on
an otherwise idle machine.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import cavalcade
from cavalcade.envs.cage2.scenario import ACTIONS
from cavalcade.watch.games.branch import CONTINUATIONS, branch
from cavalcade.watch.games.choice import Choice
from cavalcade.watch.games.defender import Defender, defender_of

_ACTION = ACTIONS.index("Restore User1")


class PlainDefender(Defender):
    """Acts by a forward pass over every game."""

    def fast_actor(self):
        return self.make()


def trained(folder: Path) -> Path:
    """A policy after a few updates."""
    settings = {"red": "meander", "episodes": 2000, "hidden": (64, 64), "progress": False}
    return cavalcade.train("cage2", **settings, run=folder / "run").path


def measured(defender: Defender, choice: Choice) -> float:
    began = time.perf_counter()
    branch(defender, choice, 0, 1, _ACTION)
    return time.perf_counter() - began


def main() -> None:
    """Prints a line for each way to act."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = (given.run or trained(Path(folder))).resolve()
        choice = Choice(run=run.name, red="meander", horizon=100)
        defender = defender_of(run.parent, run, choice)
        ways = {"distinct observations": defender}
        if given.plain:
            fields = {name: getattr(defender, name) for name in defender.__dataclass_fields__}
            ways["every observation"] = PlainDefender(**fields)
        found = {name: [] for name in ways}
        for _ in range(given.repeat + 2):
            for name, who in ways.items():
                found[name].append(measured(who, choice))
        for name, seconds in found.items():
            seconds = seconds[2:]  # the first compile
            best, median = 1000 * min(seconds), 1000 * statistics.median(seconds)
            print(
                f"2 x {CONTINUATIONS:,} continuations of 100 steps, {name}: best {best:.0f} ms, median {median:.0f} ms"
            )


if __name__ == "__main__":
    main()
