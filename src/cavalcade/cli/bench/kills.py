"""Workers killed at random all through a training: it must finish, and use every transition exactly once."""

import gc
import os
import random
import threading
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cavalcade.cli.bench.load import LEDGER
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.pool import ProcessPool
from cavalcade.vector.source import gym_source


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


def hail(kills: int, *, backend: str = "async", num_envs: int = 16, workers: int = 2, seed: int = 0) -> Outcome:
    """Trains until so many workers were killed, and a while longer."""
    before, start = _open_files(), time.perf_counter()
    host = HostConfig(backend=backend, workers=workers, max_restarts=10 * kills + 10)  # pyright: ignore[reportArgumentType]
    env = Hosted(gym_source(LEDGER), num_envs, host)
    config = PPOConfig(num_envs=num_envs, rollout_steps=32, hidden=(16,), minibatches=2)
    engine, _ = make_engine(env, config, [seed])
    env.reset()
    killer = _Killer(env, kills, seed)
    killer.start()
    updates = broken = wrong = 0
    last = None
    while killer.is_alive() or updates < 10:
        ended = engine.collect()
        broken += int(ended.kind.sum())
        wrong += _wrong(engine, last) + abs(int(ended.kind.sum()) - _unpaid(engine))
        last = env.buffers.observation.copy()
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
        assert isinstance(pool, ProcessPool)
        while self.done < self._kills:
            time.sleep(self._rng.uniform(0.0, 0.5))
            workers = [w for w in list(pool.workers.values()) if w.process.poll() is None]
            if workers:
                self._rng.choice(workers).process.kill()
                self.done += 1


def _unpaid(engine: HostEngine) -> int:
    """Transitions of this rollout that ended an episode without a step: there must be one for each broken episode."""
    r = engine.rollout
    return int((r.ended[0] & (r.reward[0] == 0)).sum())


def _wrong(engine: HostEngine, last: np.ndarray | None) -> int:
    """Transitions that do not follow from the one before: another episode, a step left out or taken twice."""
    r = engine.rollout
    shown = np.concatenate([r.observation[0].numpy(), engine.env.buffers.observation[None]])  # (T + 1, N, 3)
    ended, reward = r.ended[0].numpy(), r.reward[0].numpy()
    before, after = shown[:-1], shown[1:]
    goes_on = (after[..., :2] == before[..., :2]).all(-1) & (after[..., 2] == before[..., 2] + 1)
    begins = (after[..., 2] == 0) & (after[..., :2] != before[..., :2]).any(-1)
    paid = (reward == before[..., 2] + 1) | (ended & (reward == 0))
    wrong = int((~np.where(ended, begins, goes_on)).sum() + (~paid).sum())
    if last is not None:  # where the rollout before this one stopped, this one goes on
        wrong += int((shown[0] != last).any(-1).sum())
    return wrong


def _open_files() -> int:
    gc.collect()  # closes those of objects that nobody holds any more
    folder = Path("/proc/self/fd")
    return len(os.listdir(folder)) if folder.exists() else 0
