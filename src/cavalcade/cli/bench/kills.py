"""Workers killed at random all through a training: it must finish, and use every transition exactly once."""

import gc
import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavalcade.cli.bench.load import LEDGER
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.ppo.collectors.fragments import FragmentEngine, fragment_engine
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source
from cavalcade.vector.supervisor import Supervisor

Ends = Counter[tuple[float, ...]]  # observations
FIRST = (1.0, 0.0)  # episode and step of the first observation of an environment


class Outcome(NamedTuple):
    """Result of the training."""

    kills: int
    restarts: int
    updates: int
    transitions: int
    broken: int  # episodes that ended because their worker was killed
    wrong: int  # transitions that do not follow from the one before
    handles: int  # open files more than before
    seconds: float


WAYS = {"async": {"backend": "async"}, "staleness 2": {"staleness": 2}}


def hail(kills: int, way: dict[str, Any], *, num_envs: int = 16, workers: int = 2, seed: int = 0) -> Outcome:
    """Trains until so many workers were killed, and a while longer; way: settings of `HostConfig`."""
    before, start = _open_files(), time.perf_counter()
    host = HostConfig(workers=workers, max_restarts=10 * kills + 10, **way)
    env = Hosted(gym_source(LEDGER), num_envs, host)
    config = PPOConfig(num_envs=num_envs, rollout_steps=32, hidden=(16,), minibatches=2)
    engine = fragment_engine(env, config, [seed], host) if host.lag else make_engine(env, config, [seed])[0]
    env.reset()
    killer = _Killer(env, kills, seed)
    killer.start()
    updates = broken = wrong = 0
    ends: Ends = Counter()
    while killer.is_alive() or updates < 10:
        ended = engine.collect()
        broken += int(ended.kind.sum())
        wrong += _wrong(engine, ends) + abs(int(ended.kind.sum()) - _unpaid(engine))
        engine.update(0.0)
        updates += 1
    killer.join()
    kills, restarts, steps = killer.done, env.restarts, updates * num_envs * config.rollout_steps
    env.close()
    del env, engine, killer  # and with them their hold on the memory
    more = _open_files() - before
    return Outcome(kills, restarts, updates, steps, broken, wrong, more, time.perf_counter() - start)


class _Killer(threading.Thread):
    """Kills workers at random moments."""

    def __init__(self, env: Hosted, kills: int, seed: int):
        super().__init__(daemon=True)
        self._env, self._kills, self._rng, self.done = env, kills, random.Random(seed), 0

    def run(self) -> None:
        """Until enough are dead."""
        pool = self._env.pool
        assert isinstance(pool, Supervisor)
        while self.done < self._kills:
            time.sleep(self._rng.uniform(0.0, 0.5))
            workers = [w for w in list(pool.workers.values()) if w.process.poll() is None]
            if self._env.pool.busy is not None:  # those that have made their environments
                workers = [w for w in workers if self._env.pool.busy[w.index] > 0]
            if workers:
                self._rng.choice(workers).process.kill()
                self.done += 1


def _unpaid(engine: HostEngine) -> int:
    """Transitions of this rollout that ended an episode without a step: there must be one for each broken episode."""
    r = engine.rollout
    return int((r.ended[0] & (r.reward[0] == 0)).sum())


def _wrong(engine: HostEngine, ends: Ends) -> int:
    """Transitions that do not follow from the one before: another episode, a step left out or taken twice.

    ends: observations after which the rollouts so far stopped, each to be continued once.
    """
    r = engine.rollout
    last = engine.last[0].numpy() if isinstance(engine, FragmentEngine) else engine.env.buffers.observation
    shown = np.concatenate([r.observation[0].numpy(), last[None]])  # (T + 1, N, 3)
    ended, reward = r.ended[0].numpy(), r.reward[0].numpy()
    before, after = shown[:-1], shown[1:]
    goes_on = (after[..., :2] == before[..., :2]).all(-1) & (after[..., 2] == before[..., 2] + 1)
    begins = (after[..., 2] == 0) & (after[..., :2] != before[..., :2]).any(-1)
    paid = (reward == before[..., 2] + 1) | (ended & (reward == 0))
    wrong = int((~np.where(ended, begins, goes_on)).sum() + (~paid).sum())
    for e in range(shown.shape[1]):  # two fragments of one worker are in order
        start, stop = (tuple(row.tolist()) for row in (shown[0, e], shown[-1, e]))
        ends[start] -= 1
        ends[stop] += 1
        wrong += ends[start] < (-1 if start[1:] == FIRST else 0)
    return wrong


def _open_files() -> int:
    gc.collect()  # closes those of objects that nobody holds any more
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.exists() else 0
