"""How much a defender gains by looking ahead, and what it costs: paired on the same games.

    python benchmarks/planning.py MODEL [--thinking 0 10 100 1000] [--games 200] [--jobs 2] [--revision …]

Scores games of 100 steps as the nine cells count them; the sum over both Reds is the nine-cell total, since Sleep costs
nothing.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from scipy import stats

from cavalcade import load_policy
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.protocol import episode_returns
from cavalcade.targets.cage2.planning import Planner

_REDS = ("bline", "meander")


def play(
    name: str, revision: str, red: str, thinking: int, first: int, games: int
) -> tuple[np.ndarray, float, float, int]:
    """Weighted returns of some games; CPU seconds, share of changed decisions, lost steps of the belief."""
    policy = load_policy(name)
    planner = Planner(policy[0], thinking)
    shown = policy.config.task.shown | {"revision": revision}
    where = {"stream": "heldout", "seed": 2, "first_index": first}
    env = Cage2(games, red=red, objective="protocol", autoreset=False, threads=1, **where, **shown)
    began = time.process_time()
    returns = episode_returns(planner, env)
    return returns, time.process_time() - began, planner.changed, planner.lost


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--thinking", type=int, nargs="+", default=[0, 10, 100, 1000])
    parser.add_argument("--games", type=int, default=200, help="per Red")
    parser.add_argument("--share", type=int, default=10, help="games of one task")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--revision", default="")
    given = parser.parse_args()
    revision = given.revision or load_policy(given.model).config.task.revision
    print(f"{given.model}, {revision}, {given.games} games per Red; sums over both Reds")
    base = None
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for thinking in given.thinking:
            starts = range(0, given.games, given.share)
            tasks = {
                red: [pool.submit(play, given.model, revision, red, thinking, at, given.share) for at in starts]
                for red in _REDS
            }
            found = {red: [task.result() for task in those] for red, those in tasks.items()}
            returns = {red: np.concatenate([part[0] for part in those]) for red, those in found.items()}
            seconds = sum(part[1] for those in found.values() for part in those)
            changed = np.mean([part[2] for those in found.values() for part in those])
            lost = sum(part[3] for those in found.values() for part in those)
            line = f"{thinking:>5} continuations: total {sum(x.mean() for x in returns.values()):.2f}"
            line += "".join(f", {red} {x.mean():.2f}" for red, x in returns.items())
            base = base or returns
            if base is not returns:
                gains = [returns[red] - base[red] for red in _REDS]
                gain = sum(x.mean() for x in gains)
                error = np.sqrt(sum(x.var(ddof=1) / len(x) for x in gains))
                line += f"; gain {gain:.2f} ± {error:.2f} (standard error), p = {stats.norm.sf(gain / error):.1e}"
            per = seconds / (2 * given.games * 100)
            print(f"{line}; {1000 * per:.2f} ms of a core per decision, {changed:.1%} changed, {lost} lost", flush=True)


if __name__ == "__main__":
    main()
