"""Does a network learn what planning finds? Plays with the planner, trains the network towards it, scores both.

    python benchmarks/distil_planning.py MODEL [--games 100] [--thinking 10] [--epochs 200] [--pull 1 4] [--jobs 1]

Games of the training stream are played with the planner; each decision gives the observation, the mask, the planned
action and the policy's own probabilities. The loss is −log π(planned) where planning changed the action, times --pull,
plus KL(own ‖ π) everywhere, so that π stays as it was where planning agrees. Half of the games choose the epoch. The
result is scored against the policy on held-out games, paired.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch.nn.functional import log_softmax

from cavalcade import load_policy
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.protocol import episode_returns
from cavalcade.targets.cage2.planning import Planner

_REDS = ("bline", "meander")
_AT_ONCE = 20  # games of one planner
_EVERY = 10  # epochs between looks at the other half of the games


class Decisions(NamedTuple):
    """Decisions of a planner, D of them."""

    observation: NDArray[np.uint8]  # (D, O)
    mask: NDArray[np.bool_]  # (D, A)
    planned: NDArray[np.int64]  # (D,)
    own: NDArray[np.int64]  # (D,)


def collected(name: str, red: str, first: int, games: int, thinking: int) -> Decisions:
    """Decisions in some games of the training stream."""
    policy = load_policy(name)[0]
    planner, runner = Planner(policy, thinking, seed=first), policy.runner(0)
    where = {"stream": "train", "seed": 7, "first_index": first}
    env = Cage2(games, red=red, objective="protocol", autoreset=False, threads=1, **where, **policy.config.task.shown)
    env.reset()
    rows = []
    while not env.buffers.truncated[0]:
        seen = env.buffers.observation.copy(), env.buffers.action_mask.copy()
        own, planned = runner(env).copy(), planner(env).copy()
        rows.append((*seen, planned.astype(np.int64), own.astype(np.int64)))
        env.step(planned)
    return Decisions(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def distilled(policy: Any, learn: Decisions, check: Decisions, pull: float, epochs: int, rate: float) -> Any:
    """The policy, trained towards the planner; the epoch is chosen on decisions that it did not learn from."""
    weights = torch.tensor(policy.weights, requires_grad=True)
    context = torch.from_numpy(policy.context)

    def log_probabilities(d: Decisions) -> torch.Tensor:
        logits, _ = policy.spec.forward(weights, torch.from_numpy(d.observation)[None], context)
        return log_softmax(logits[0].masked_fill(~torch.from_numpy(d.mask), -1e9), dim=-1)

    def loss(d: Decisions, before: torch.Tensor) -> torch.Tensor:
        after = log_probabilities(d)
        kept = (before.exp() * (before - after)).sum(dim=-1).mean()
        changed = torch.from_numpy(d.planned != d.own)
        told = -after[torch.arange(len(after)), torch.from_numpy(d.planned)]
        return kept + pull * (told * changed).sum() / len(after)

    with torch.no_grad():
        before = [log_probabilities(d) for d in (learn, check)]
        best, chosen = float(loss(check, before[1])), policy.weights
        print(f"  pull {pull:g}: loss on the other half {best:.4f}", end="")
    optimizer = torch.optim.Adam([weights], rate)
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        loss(learn, before[0]).backward()
        optimizer.step()
        if epoch % _EVERY == 0:
            with torch.no_grad():
                now = float(loss(check, before[1]))
            if now < best:
                best, chosen = now, weights.detach().numpy().copy()
    print(f", after training {best:.4f}", flush=True)
    return replace(policy, weights=chosen)


def returns_of(policy: Any, red: str, games: int) -> NDArray:
    """Returns on held-out games, as the nine cells count them."""
    options = policy.config.task.shown | {"stream": "heldout", "seed": 3, "autoreset": False, "threads": 1}
    return episode_returns(policy.runner(0), Cage2(games, red=red, objective="protocol", **options))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--games", type=int, default=100, help="per Red")
    parser.add_argument("--thinking", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--pull", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--scored", type=int, default=4000, help="held-out games per Red")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    began = time.perf_counter()
    torch.set_num_threads(1)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        tasks = [
            pool.submit(collected, given.model, red, at, _AT_ONCE, given.thinking)
            for at in range(0, given.games, _AT_ONCE)
            for red in _REDS
        ]
        parts = [task.result() for task in tasks]
    half = len(parts) // 4 * 2  # both Reds
    learn, check = (
        Decisions(*(np.concatenate(column) for column in zip(*some, strict=True)))
        for some in (parts[half:], parts[:half])
    )
    changed = np.mean(np.concatenate([d.planned != d.own for d in (learn, check)]))
    count = len(learn.own) + len(check.own)
    print(
        f"{given.model}: {count:,} decisions, {changed:.2%} changed by planning ({time.perf_counter() - began:.0f} s)"
    )
    policy = load_policy(given.model)[0]
    before = {red: returns_of(policy, red, given.scored) for red in _REDS}
    print(f"  before: total {sum(x.mean() for x in before.values()):.2f}")
    for pull in given.pull:
        better = distilled(policy, learn, check, pull, given.epochs, given.rate)
        gains = [returns_of(better, red, given.scored) - before[red] for red in _REDS]
        gain, error = sum(x.mean() for x in gains), np.sqrt(sum(x.var(ddof=1) / len(x) for x in gains))
        p = stats.norm.sf(gain / error) if error else 1.0
        print(f"  gain of the network {gain:.2f} ± {error:.2f} (standard error), p = {p:.1e}", flush=True)


if __name__ == "__main__":
    main()
