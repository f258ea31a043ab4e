"""What more machines would give, worked out from measured constants: who becomes the limit, and where.

Rates are those of whatever is slowest; nothing is said of how well large batches learn.
"""

from typing import NamedTuple

NODES = (1, 10, 100, 1000)
_CORES = 16  # of a node
_NETWORK = 1.25e9  # bytes/s of a network card of 10 Gbit/s
_HOP = 50e-6  # seconds of a message between machines


class Row(NamedTuple):
    """Some nodes: how fast, and why not faster."""

    nodes: int
    rate: float
    limit: str


def _least(nodes: int, **limits: float) -> Row:
    name = min(limits, key=lambda name: limits[name])
    return Row(nodes, limits[name], name)


def searching(*, trainings: int, seconds: float, state: float, tasks: int, task: float) -> list[Row]:
    """Trainings per hour of a search on Ray.

    trainings: that there are to do at once; seconds: of a training on a core; state: bytes that a task brings and
    takes; tasks: of a training; task: seconds that the driver is busy with one.
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


def collecting(*, actor: float, learner: float, step: float, fragment: int, call: float, weights: float) -> list[Row]:
    """Steps/s of one learner and many actors that play whole rollouts.

    actor, learner: steps/s that one plays, and the other learns from; step: bytes of one; fragment: steps of one; call:
    seconds that the learner's process is busy with one; weights: bytes of the policy, fetched once per node and update.
    """
    rows = []
    for nodes in NODES:
        update = fragment * _CORES * nodes  # steps of an update, a fragment of every actor
        rows.append(
            _least(
                nodes,
                actors=actor * _CORES * nodes,
                learner=learner,
                calls=fragment / call,
                network=_NETWORK / (step + weights * nodes / update),
            )
        )
    return rows


def sharing(*, rate: float, samples: int, sums: int, others: int, gradient: float, latency: float) -> list[Row]:
    """Steps/s of ranks that share a training, a rank per node, each with its own environments.

    rate: steps/s of one alone; samples: of one in an update; sums: of gradients in an update, each of so many bytes;
    others: further messages; latency: seconds of the smallest message between two ranks.
    """
    rows = []
    for nodes in NODES:
        learn = samples / rate
        wait = (
            (sums + others) * (latency + 2 * _HOP * max(nodes - 1, 0)) if nodes > 1 else 0.0
        )  # a ring has 2 (n − 1) hops
        carry = sums * 2 * gradient / _NETWORK if nodes > 1 else 0.0
        name = max((learn, "learning"), (wait, "latency"), (carry, "network"))[1]
        rows.append(Row(nodes, nodes * samples / (learn + wait + carry), name))
    return rows
