"""Data-parallel ranks: an engine per rank, recorded and saved like one engine with all the environments."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import from_numpy

from cavalcade.ppo.distributed import TorchRanks
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.snapshot import Counters, Snapshot

_BY_ENVIRONMENT = ("return_sum", "episode_return", "episode_length")  # tensors of a snapshot's `learner`, (1, N)


class Stoppable(Protocol):
    stopping: bool


def gather(snapshot: Snapshot, ranks: TorchRanks, *flags: NDArray) -> tuple[Snapshot, list[list[NDArray]]]:
    """Merges the snapshots of all ranks, in one message; returns the result and the flags of each rank."""
    own = [snapshot.learner[name].numpy() for name in _BY_ENVIRONMENT]
    found = ranks.gather(*flags, *own, *snapshot.games.values())
    said, found = found[: len(flags)], found[len(flags) :]
    learner = {name: tensor.clone() for name, tensor in snapshot.learner.items()}
    for name, parts in zip(_BY_ENVIRONMENT, found, strict=False):
        learner[name] = from_numpy(np.concatenate(parts, axis=1))
    games = dict(zip(snapshot.games, map(np.concatenate, found[len(own) :]), strict=True))
    policy = {name: tensor.clone() for name, tensor in snapshot.policy.items()}
    return Snapshot(policy, learner, games, snapshot.counters), said


def share_of(snapshot: Snapshot, here: slice) -> Snapshot:
    """A rank's part of a merged snapshot."""
    cut = {n: t[:, here].contiguous() if n in _BY_ENVIRONMENT else t for n, t in snapshot.learner.items()}
    return snapshot._replace(learner=cut, games={name: array[here] for name, array in snapshot.games.items()})


class DistributedEngine:
    """The engines of all ranks. It gathers a snapshot after every update, so that a lost rank loses no progress."""

    def __init__(self, engine: Engine, ranks: TorchRanks, asked: Stoppable):
        self._engine, self._ranks, self._asked = engine, ranks, asked
        self.name, self.timer, self.hyper, self.policies = engine.name, engine.timer, engine.hyper, engine.policies
        self.notes, self.num_envs, self.network = engine.notes, engine.num_envs, engine.network
        self.episode_kind_names, self.episode_stat_names = engine.episode_kind_names, engine.episode_stat_names
        self.set_threads = engine.set_threads
        self.stop_requested = False  # on any rank
        self._snapshot: Snapshot | None = None

    @property
    def counters(self) -> Counters:
        """Counters of the latest update that all ranks have completed."""
        return self._snapshot.counters if self._snapshot else self._engine.counters

    def collect(self) -> Episodes:
        """Collects a rollout; returns the episodes of all ranks."""
        ended = self._engine.collect()
        rows = np.column_stack([*(np.asarray(x, np.float64) for x in ended[:5]), ended.episode_stats])
        rows[:, 1] += self._ranks.rank * self._engine.env.spec.num_envs
        found = self._ranks.gather_rows(rows)
        self.timer.lap("wait")
        policy, environment, kind, length = (found[:, i].astype(np.int64) for i in (0, 1, 2, 4))
        return Episodes(policy, environment, kind, found[:, 3], length, found[:, 5:])

    def update(self, progress: float) -> dict[str, Any]:
        """Updates the policy, then gathers a snapshot of all ranks."""
        metrics = self._engine.update(progress)
        self.gather()
        return metrics

    def gather(self) -> None:
        """Gathers the snapshot; a stop requested on any rank is sent in the same message."""
        stopping = np.array([self._asked.stopping])
        self._snapshot, (stops,) = gather(self._engine.snapshot(), self._ranks, stopping)
        self.stop_requested = any(stop[0] for stop in stops)
        self.timer.lap("wait")

    def snapshot(self) -> Snapshot:
        """The merged snapshot of the latest update."""
        assert self._snapshot
        return self._snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Loads this rank's share of a snapshot."""
        self._engine.restore(share_of(snapshot, self._ranks.share(self.num_envs, "num_envs")))
