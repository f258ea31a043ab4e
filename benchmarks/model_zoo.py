"""Writes a shipped model and its card from a run: chosen on validation games, scored on held-out ones.

    python benchmarks/model_zoo.py RUN NAME "SUMMARY" "HOW IT WAS TRAINED" [--cyborg FILE…]

--cyborg adds scores in the original, from files that `cavalcade evaluate model:NAME --cyborg CLONE --json FILE` wrote.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from cavalcade import evaluate, load_policy, models
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.protocol import episode_returns
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.runs.policy_file import SUFFIX, write_policy_file
from cavalcade.targets.cage2.shared import with_order, workflow_options
from cavalcade.workflow.summary import pooled_compliance

VALIDATION = 5_000  # games per Red
COMPLIANCE = 1_000  # games per Red in which compliance is counted
LIMITS = (
    "Trained for the agents of the challenge, without Green, on the revision named; on the other one, against other "
    "Reds and in changed scenarios it may play worse. Needs the mask of decoys that can be deployed, which Blue knows."
)
OBEYS = " The order binds through a mask on Blue's own table, which is part of the policy and comes with it."
TABLE = "Blue's table of 13 hosts"
EXTRAS = {
    "scans": "hosts seen scanned", "decoys": "its own decoys", "action": "its last action", "elapsed": "steps elapsed",
    "belief": "what it can conclude of Red's sessions",
}  # fmt: skip


def validation_returns(policy) -> dict[str, np.ndarray]:
    """Mean of each policy by the objective of its training on validation games, (P,), by Red."""
    task, objective = policy.config.task, policy.config.objective
    found = {}
    for red in ("bline", "meander") if task.red == "mixed" else (task.red,):
        seeds = [0] * policy.policies
        options = {"stream": "evaluate", "seed": seeds, "objective": objective, "horizon": task.horizon}
        env = Cage2(policy.policies * VALIDATION, red=red, **options, **task.shown)
        found[red] = episode_returns(policy.runner(), env).reshape(policy.policies, -1).mean(axis=1)
    return found


def cell_scores(plain: dict) -> dict:
    """Scores by revision, as a card has them."""
    found = {}
    for revision, cells in plain["revisions"].items():
        by_cell = {f"{c['red']}-{c['horizon']}": [round(c["mean"], 2), round(c["interval"], 2)] for c in cells}
        total = [round(plain["totals"][revision][part], 2) for part in ("total", "interval")]
        found[revision] = {"episodes": plain["episodes"], "cells": by_cell, "total": total}
    return found


def obedience(policy) -> dict:
    """The order of a policy, and the share of its repairs that keep it, by Blue's table and in truth."""
    found, config = [], policy.config
    for red in ("bline", "meander"):
        options = config.task.shown | {"red": red, "stream": "heldout", "seed": 1, "autoreset": False}
        env = with_order(WorkflowCage2(COMPLIANCE, **options, **workflow_options(config)), config)
        env.reset()
        runner = policy.runner()
        while not env.buffers.truncated[0]:
            env.step(runner(env))
        found.append(env.episode_stats.copy())
    stats = dict(zip(WorkflowCage2.episode_stat_names, np.concatenate(found).T, strict=True))
    names = {"table": ("compliance", "counted"), "true state": ("true_compliance", "true_counted")}
    shares = {
        what: round(float(pooled_compliance(zip(stats[share], stats[count], strict=True))), 4)
        for what, (share, count) in names.items()
    }
    counted = round(float(stats["counted"].mean()), 2)
    return {"order": policy.order, "compliance": shares | {"counted per game": counted}}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("run", "name", "summary", "trained"):
        parser.add_argument(name)
    parser.add_argument("--cyborg", nargs="*", type=Path, default=[])
    given = parser.parse_args()
    file = Path(models.__file__).with_name(given.name + SUFFIX)
    policy = load_policy(given.run)
    means = np.sum(list(validation_returns(policy).values()), axis=0)
    member = int(means.argmax())
    write_policy_file(file, policy.path, member)
    print("validation", np.round(np.sort(means), 2), "member", member)
    task = policy.config.task
    shown = ", ".join([TABLE, *(text for name, text in EXTRAS.items() if name in task.extras)])
    best, lowest = float(means.max()), float(means.min())
    chosen = f"seed {policy.config.seed + member}, best of {len(means)} on {VALIDATION:,} validation games per Red"
    scores = {"cavalcade": cell_scores(evaluate(f"{models.PREFIX}{given.name}").plain)}
    for path in given.cyborg:
        scores.setdefault("cyborg", {}).update(cell_scores(json.loads(path.read_text())))
    card = {
        "name": given.name, "summary": given.summary, "revision": task.revision, "trained": given.trained,
        "chosen": f"{chosen} ({lowest:.2f} to {best:.2f})", "observes": shown,
        "network": "-".join(map(str, (policy.spec.inputs, *policy.spec.hidden, policy.spec.actions))),
        **(obedience(policy[member]) if policy.order else {}),
        "scores": scores, "limits": LIMITS + OBEYS * bool(policy.order), "licence": "MIT",
    }  # fmt: skip
    file.with_suffix(".json").write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    print(file, file.stat().st_size)


if __name__ == "__main__":
    main()
