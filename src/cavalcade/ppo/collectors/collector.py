"""Collecting fragments: workers or Ray actors play with a copy of the policy while the learner learns.

An update learns from as many fragments as there are workers, the oldest first; a fast worker may have played two of
them. Any engine on hosted environments takes them from here.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.jit import kernel
from cavalcade.core.threads import few_threads
from cavalcade.core.timer import Timer
from cavalcade.ppo.collectors.lead import Lead
from cavalcade.ppo.gae import discounted_moments
from cavalcade.ppo.rollout import Episodes
from cavalcade.ppo.state import HyperParams, SavedTensors
from cavalcade.vector.fragment_pool import FragmentPool
from cavalcade.vector.fragments import Fragment, FragmentPlan, FragmentSource
from cavalcade.vector.hosted import Hosted

Record = Callable[[int, Fragment], Episodes]  # stores a fragment; returns the episodes that ended in it
_CLOCKS = "actor_clocks"
_WAITING = 0.1  # share of the time from which on a learner counts as waiting for its workers


@kernel
def track_episodes(reward, ended, total, length, totals, lengths):
    """Returns and lengths (T, n) of episodes that end in a fragment, at their ends; total, length: so far, (n,)."""
    for t in range(reward.shape[0]):
        for e in range(reward.shape[1]):
            total[e] += reward[t, e]
            length[e] += 1
            if ended[t, e]:
                totals[t, e], lengths[t, e] = total[e], length[e]
                total[e], length[e] = 0.0, 0


class FragmentCollector:
    """Takes the fragments of hosted environments that are at most `staleness` updates old."""

    def __init__(self, env: Hosted, plan: FragmentPlan, staleness: int):
        self._env, self._staleness = env, staleness
        self._source, self._lead = _source(env, plan, eager=staleness > 0), Lead(max(staleness, 1))
        self.ages: list[int] = []  # of the fragments taken last, in updates
        self._began, self._waits = time.perf_counter(), False

    def collect(self, version: int, values: NDArray[np.float32], record: Record, timer: Timer) -> Episodes:
        """Takes as many fragments as there are workers, the oldest first; `record` stores each at a worker's place."""
        timer.skip()
        taken = self.wait(version, values)
        timer.lap("step")
        ended = []
        for place, fragment in enumerate(taken):
            ended.append(record(place, fragment))
            self.take(fragment)
        timer.lap("store")
        return Episodes(*(np.concatenate(column) for column in zip(*ended, strict=True)))

    def wait(self, version: int, values: NDArray[np.float32]) -> list[Fragment]:
        """Publishes a policy; waits for as many fragments as there are workers and returns them, the oldest first."""
        source, limit, start = self._source, max(self._staleness, 1), time.perf_counter()
        source.publish(version, values)
        count, waited = len(source.groups), False
        while len(found := source.finished()) < count or any(version - v >= limit for v in source.playing()):
            waited = True
            self._lead.waits(found)
            source.allow(self._lead.fragments)
            source.wait(len(found))
        if not waited:
            self._lead.never_waited()
            source.allow(self._lead.fragments)
        taken = sorted(found, key=lambda one: (one.version, one.number, one.worker))[:count]
        if self._staleness < 2:  # one of each worker: results must not depend on the order of arrival
            taken.sort(key=lambda one: one.worker)
        self.ages = [version - fragment.version for fragment in taken]
        now = time.perf_counter()
        self._waits, self._began = now - start > _WAITING * (now - self._began), now
        return taken

    def threads(self) -> AbstractContextManager[None]:
        """For an update: one thread if the learner has to wait for workers anyway, which need the cores."""
        return few_threads() if self._waits else nullcontext()

    def take(self, fragment: Fragment) -> None:
        """Gives a fragment back to its worker, once it is recorded."""
        rows = self._env.groups[fragment.worker]
        self._env.buffers.observation[rows] = fragment.fields["observation"][-1]
        self._source.take(fragment)

    def track(
        self, f: Fragment, ended: NDArray[np.bool_], state: SavedTensors, hyper: HyperParams, *, normalise: bool
    ) -> Episodes:
        """Counts the rewards of a fragment; returns the episodes that ended, by step and environment.

        normalise: also add its discounted rewards to the moments of returns.
        """
        mine, reward = self._env.groups[f.worker], np.ascontiguousarray(f.fields["reward"])
        if normalise:
            running = state.return_sum[:, mine].numpy().copy()
            moments = (x.numpy() for x in (state.return_count, state.return_mean, state.return_square))
            discounted_moments(reward[None], ended[None], hyper.gamma, running, *moments)
            state.return_sum[:, mine] = torch.from_numpy(running)
        totals, lengths = np.zeros(ended.shape), np.zeros(ended.shape, np.int64)
        running = (x[0, mine].numpy() for x in (state.episode_return, state.episode_length))
        track_episodes(reward, ended, *running, totals, lengths)
        at = _, environment = ended.nonzero()
        stats = f.fields["episode_stats"][at]
        kinds = self._env.kinds_of(f.fields["lost"][at], stats)
        shown, policy = stats[:, : len(self._env.episode_stat_names)], np.zeros(len(environment), np.int64)
        return Episodes(policy, environment + mine.start, kinds, totals[at], lengths[at], shown)

    def metrics(self) -> dict[str, NDArray]:
        """The age of the oldest fragment, in updates."""
        return {"staleness": np.array([float(max(self.ages))])}

    def memory(self) -> dict[str, Tensor]:
        """Steps of each worker's environments, so that no random number is used twice."""
        return {_CLOCKS: torch.from_numpy(self._source.clocks)}

    def load_memory(self, saved: Mapping[str, Tensor], clock: int) -> None:
        """Continues after `clock` steps or those of the furthest worker; the number of workers may have changed."""
        if _CLOCKS in saved:
            clock = max(int(saved[_CLOCKS].max()), clock)
        self._source.set_clock(clock)


def _source(env: Hosted, plan: FragmentPlan, *, eager: bool) -> FragmentSource:
    pool = env.pool
    if isinstance(pool, FragmentPool):
        pool.start(plan)
        return pool
    from cavalcade.vector.ray_fragments import RayFragments
    from cavalcade.vector.ray_pool import RayPool

    assert isinstance(pool, RayPool)
    return RayFragments(pool, plan, eager=eager)
