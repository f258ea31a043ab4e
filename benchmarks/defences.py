"""What policies do differently: actions, costs and Red's hold on hosts, on the same games.

    python benchmarks/defences.py POLICY [POLICY …] [--red bline] [--games 2000] [--revision …]

POLICY is a run, a policy file or model:NAME; of a run with several policies, every one is shown.
"""

import argparse
from collections import Counter

import numpy as np

from cavalcade import load_policy
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.reward import PARTS
from cavalcade.envs.cage2.scenario import ACTIONS, FIRST_RESTORE_ACTION, HOSTS, NUM_ACTIONS, USER0
from cavalcade.envs.cage2.state import host_bits

_SHOWN = 14
_PHASES = ((1, 10), (11, 30), (31, 100))


def shown(title: str, policy, red: str, revision: str, games: int) -> None:
    """Plays one policy and prints what it does."""
    options = policy.config.task.shown | {"revision": revision}
    env = Cage2(games, red=red, stream="evaluate", seed=0, autoreset=False, threads=1, **options)
    env.reset()
    runner = policy.runner(0)
    counts, parts, held = np.zeros((100, NUM_ACTIONS)), np.zeros(len(PARTS)), np.zeros((100, len(HOSTS)))
    first: Counter[str] = Counter()
    for t in range(100):
        actions = runner(env)
        counts[t] = np.bincount(actions, minlength=NUM_ACTIONS) / games
        if t < 4:
            first[f"step {t + 1}: {ACTIONS[counts[t].argmax()]} ({counts[t].max():.0%})"] += 1
        env.step(actions)
        parts += env.reward_parts.sum(axis=0) / 10 / games
        held[t] = host_bits(env.state.privileged).mean(axis=0)
    costs = ", ".join(f"{name} {value:.2f}" for name, value in zip(PARTS, parts, strict=True))
    print(f"\n{title}: return {parts.sum():.2f} ({costs})")
    print("  first", "; ".join(first))
    for begin, end in _PHASES:
        mean = counts[begin - 1 : end].sum(axis=0)
        best = [a for a in np.argsort(-mean)[:_SHOWN] if mean[a] >= 0.05]
        print(f"  steps {begin}–{end}, per game:", ", ".join(f"{ACTIONS[a]} {mean[a]:.2f}" for a in best))
    restores = counts[:, FIRST_RESTORE_ACTION:].sum(axis=0)
    print("  Restores per game:", _largest(restores))
    print("  steps in which Red is privileged, per game:", _largest(held.sum(axis=0)))


def _largest(by_host: np.ndarray) -> str:
    """Hosts with the largest numbers, without User0, where Red always is."""
    return ", ".join(f"{HOSTS[h]} {by_host[h]:.2f}" for h in np.argsort(-by_host) if by_host[h] >= 0.02 and h != USER0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--red", default="bline")
    parser.add_argument("--games", type=int, default=2000)
    parser.add_argument("--revision", default="")
    given = parser.parse_args()
    for name in given.policies:
        policies = load_policy(name)
        for p in range(policies.policies):
            title = f"{name}, policy {p}" if policies.policies > 1 else name
            shown(title, policies[p], given.red, given.revision or policies.config.task.revision, given.games)


if __name__ == "__main__":
    main()
