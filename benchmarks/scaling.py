"""What more machines would give, worked out from measured constants: which resource becomes the limit, and where.

    python benchmarks/scaling.py [FIGURES]

FIGURES is what `cavalcade bench distributed --json FIGURES` wrote; without it, everything is measured first, which
takes about ten minutes. Prints rates for 1 to 1,000 nodes of 16 cores: that of whatever is slowest. Nothing is said of
how well large batches learn.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from cavalcade.cli.bench import distributed
from cavalcade.core.errors import CavalcadeError
from cavalcade.search.config import SearchConfig
from cavalcade.targets.gym import GYM_PPO

NODES = (1, 10, 100, 1000)
_CORES = 16  # of a node
_NETWORK = 1.25e9  # bytes/s of a network card of 10 Gbit/s
_HOP = 50e-6  # seconds of a message between machines
_MESSAGES = 7  # of an update besides gradients: two each for returns, advantages and episodes, one for a checkpoint
_TRAININGS = 600  # 120 orders × 5 rounds


class Row(NamedTuple):
    """Some nodes: how fast, and what is the limit."""

    nodes: int
    rate: float
    limit: str


def _least(nodes: int, **limits: float) -> Row:
    name = min(limits, key=lambda name: limits[name])
    return Row(nodes, limits[name], name)


def searching(*, trainings: int, seconds: float, state: float, tasks: int, task: float) -> list[Row]:
    """Trainings per hour of a search on Ray.

    Args:
        trainings: That there are to do at once.
        seconds: Of a training on a core.
        state: Bytes that a task brings and takes.
        tasks: Of a training.
        task: Seconds that the driver is busy with one.
    """
    return [
        _least(
            nodes,
            cores=3600 * _CORES * nodes / seconds,
            trainings=3600 * trainings / seconds,
            driver=3600 / (tasks * task),
            network=3600 * _NETWORK / (2 * tasks * state),
        )
        for nodes in NODES
    ]


def collecting(*, actor: float, learner: float, step: float, rollout: int, call: float, weights: float) -> list[Row]:
    """Steps/s of one learner and many actors that play whole rollouts.

    Args:
        actor: Steps/s that an actor plays.
        learner: Steps/s that the learner learns from.
        step: Bytes of a step.
        rollout: Steps of an actor's rollout.
        call: Seconds that the learner's process is busy with one.
        weights: Bytes of the policy, fetched once per node and update.
    """
    rows = []
    for nodes in NODES:
        update = rollout * _CORES * nodes  # steps of an update, a rollout of every actor
        rows.append(
            _least(
                nodes,
                actors=actor * _CORES * nodes,
                learner=learner,
                calls=rollout / call,
                network=_NETWORK / (step + weights * nodes / update),
            )
        )
    return rows


def sharing(*, rate: float, samples: int, sums: int, others: int, gradient: float, latency: float) -> list[Row]:
    """Steps/s of ranks that share a training, a rank per node, each with its own environments.

    Args:
        rate: Steps/s of one rank alone.
        samples: Of a rank in an update.
        sums: Of gradients in an update.
        others: Further messages.
        gradient: Bytes of a gradient.
        latency: Seconds of the smallest message between two ranks.
    """
    rows = []
    for nodes in NODES:
        learn = samples / rate
        hops = 2 * max(nodes - 1, 0)  # of a ring
        wait = (sums + others) * (latency + _HOP * hops) if nodes > 1 else 0.0
        carry = sums * 2 * gradient / _NETWORK if nodes > 1 else 0.0
        name = max((learn, "learning"), (wait, "latency"), (carry, "network"))[1]
        rows.append(Row(nodes, nodes * samples / (learn + wait + carry), name))
    return rows


def model(figures: dict[str, Any]) -> dict[str, list[Row]]:
    """Tables by title, as far as the figures of `cavalcade bench distributed` reach."""
    found, costs, constants = figures["scaling"], figures["scaling"]["costs"], figures["scaling"]["constants"]
    tables: dict[str, list[Row]] = {}
    if "search" in figures:
        seconds = found["threads"] * figures["search"]["in this process"] / distributed.ORDERS  # of one core
        tasks = -(-distributed.updates_of(figures["seconds"]) // SearchConfig().ray.task_updates)
        tables["search on Ray, 120 orders × 5 rounds, trainings per hour"] = searching(
            trainings=_TRAININGS, seconds=seconds, state=found["state"], tasks=tasks, task=constants["task"]
        )
    rollout = GYM_PPO.rollout_steps * GYM_PPO.num_envs
    for what, play in (("CartPole", costs["play"]), ("steps of 1 ms", 1 / (1e-3 + 1 / costs["play"]))):
        tables[f"collection on Ray, {what}, a learner of 16 cores, steps/s"] = collecting(
            actor=play, learner=16 * costs["learn"], step=costs["step"], rollout=rollout, call=constants["call"],
            weights=costs["weights"],
        )  # fmt: skip
    if "ranks" in figures:
        ppo = distributed.RANKS
        samples, sums = ppo.num_envs * ppo.rollout_steps, ppo.epochs * ppo.minibatches
        tables[f"ranks of two cores, CAGE-2, {samples:,} samples of each and {sums} sums per update, steps/s"] = (
            sharing(
                rate=figures["ranks"]["64-64, cpu"]["2 threads"], samples=samples, sums=sums, others=_MESSAGES,
                gradient=found["gradient"], latency=constants["reduce"],
            )
        )  # fmt: skip
    return tables


def main() -> None:
    """Prints the tables."""
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) == 2 else Path(folder, "figures.json")
        try:
            if len(sys.argv) == 1:
                distributed.run(["--json", str(path)])
            tables = model(json.loads(path.read_text()))
        except (CavalcadeError, OSError, ValueError) as error:
            sys.exit(f"{path}: {error}")
        except KeyError as error:
            sys.exit(f"{path} lacks {error}; write it with: cavalcade bench distributed --json {path}")
    print("\nmodel: nodes of 16 cores unless said otherwise, 10 Gbit/s, 50 µs between machines (assumed)")
    for name, rows in tables.items():
        print(f"\n{name}")
        for row in rows:
            print(f"  {row.nodes:>5} nodes{row.rate:>16,.0f}   limited by {row.limit}")


if __name__ == "__main__":
    main()
