"""How fast environments are hosted: our backends beside those of others, over workers, environments and kinds of load.

Ours and Gymnasium's loop run in turns, best of several; peers with a process per environment, or that never sleep, run
by themselves. Nothing else should run meanwhile.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from cavalcade.bench import load
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.envs.cage2.cyborg import cyborg_source
from cavalcade.ppo.make import make_learner
from cavalcade.vector.crew import WorkerCrew
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import Source, gym_source

CHEAP = "CartPole-v1"
_ROUNDS = 12
Step = Callable[[], int]  # does something and returns how many environments stepped


class Contender(NamedTuple):
    """Something that steps environments."""

    name: str
    step: Step
    close: Callable[[], None]


def hosted(source: Source, num_envs: int, name: str, **config: Any) -> Contender:
    """Ours, driven group by group with random actions."""
    env = Hosted(source, num_envs, HostConfig(**config))
    env.reset()
    rng = np.random.default_rng(0)
    shape, groups = (64, *env.slab.action.shape), env.groups
    drawn = rng.integers(0, env.spec.action_space.n, shape)  # pyright: ignore[reportAttributeAccessIssue]
    if len(groups) == 1:
        return Contender(name, _stepping(lambda i: env.step(drawn[i % 64]), num_envs), env.close)
    for g, rows in enumerate(groups):
        env.send_group(g, drawn[0][rows])
    counts = [0]

    def step() -> int:
        g = env.take()
        counts[0] += 1
        env.send_group(g, drawn[counts[0] % 64][groups[g]])
        return groups[g].stop - groups[g].start

    return Contender(name, step, env.close)


def _stepping(step: Callable[[int], object], num_envs: int) -> Step:
    count = [0]

    def once() -> int:
        step(count[0])
        count[0] += 1
        return num_envs

    return once


def gymnasium_sync(num_envs: int) -> Contender:
    """Gymnasium's own loop."""
    return _gymnasium("Gymnasium SyncVectorEnv", gymnasium.vector.SyncVectorEnv, num_envs)


def gymnasium_async(num_envs: int) -> Contender:
    """Gymnasium's processes, one per environment, with shared memory."""
    return _gymnasium("Gymnasium AsyncVectorEnv", gymnasium.vector.AsyncVectorEnv, num_envs)


def _gymnasium(name: str, kind: Any, num_envs: int) -> Contender:
    env = kind([lambda: gymnasium.make(CHEAP) for _ in range(num_envs)])
    env.reset(seed=0)
    return _peer(name, env, num_envs)


def _peer(name: str, env: Any, num_envs: int) -> Contender:
    """A batch of the cheap environment, by random actions."""
    drawn = np.random.default_rng(0).integers(0, 2, (64, num_envs))
    return Contender(name, _stepping(lambda i: env.step(drawn[i % 64]), num_envs), env.close)


def sb3_subproc(num_envs: int) -> Contender | None:
    """Stable-Baselines3's processes, if it is installed."""
    try:
        from stable_baselines3.common.vec_env import SubprocVecEnv
    except ImportError:
        return None
    env = SubprocVecEnv([lambda: gymnasium.make(CHEAP) for _ in range(num_envs)], start_method="fork")
    env.reset()
    return _peer("SB3 SubprocVecEnv", env, num_envs)


def pufferlib(num_envs: int, workers: int) -> Contender | None:
    """PufferLib's processes, if it is installed."""
    try:
        import pufferlib.emulation  # pyright: ignore[reportMissingImports]
        import pufferlib.vector  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None

    def make(buf: Any = None, seed: int = 0) -> Any:
        return pufferlib.emulation.GymnasiumPufferEnv(gymnasium.make(CHEAP), buf=buf)

    env = pufferlib.vector.make(
        make, backend=pufferlib.vector.Multiprocessing, num_envs=num_envs, num_workers=workers, batch_size=num_envs
    )
    env.reset(seed=0)
    return _peer("PufferLib Multiprocessing", env, num_envs)


def rates(contenders: list[Contender], seconds: float) -> dict[str, float]:
    """Environment steps per second of each, in turns, best of several rounds."""
    best = {c.name: 0.0 for c in contenders}
    for _ in range(_ROUNDS):
        for c in contenders:
            steps, start = 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < seconds / _ROUNDS:
                steps += c.step()
            best[c.name] = max(best[c.name], steps / taken)
    return best


def cheap(num_envs: int, workers: int, seconds: float, peers: bool = True) -> dict[str, float]:
    """Backends and peers on an environment whose step takes microseconds."""
    source = gym_source(CHEAP)
    with ExitStack() as stack:
        made: list[Contender | None] = [
            hosted(source, num_envs, "serial", backend="serial"),
            hosted(source, num_envs, "pipe", backend="pipe", workers=workers),
            hosted(source, num_envs, "shared", backend="shared", workers=workers),
            hosted(source, num_envs, "async", backend="async", workers=workers, async_factor=2),
        ]
        if peers:
            made.append(gymnasium_sync(num_envs))
        quiet = [c for c in made if c]
        for c in quiet:
            stack.callback(c.close)
        found = rates(quiet, seconds)
        if peers:  # hundreds of processes, or some that never sleep, disturb the rest: these run by themselves
            for make in (gymnasium_async, sb3_subproc, lambda n: pufferlib(n, workers)):
                c = make(num_envs)
                if c:
                    found |= rates([c], seconds)
                    c.close()
    return found


class Uneven(NamedTuple):
    """Collecting experience from steps of uneven length."""

    name: str
    rate: float  # environment steps per second, learner's forward passes included
    idle: float  # share of time that the learner waited
    longest_wait: float  # seconds
    longest_step: float  # seconds that a step of a group can take at most


def uneven(work: bool, num_envs: int, workers: int, steps: int) -> Iterator[Uneven]:
    """Shared against async on steps of 1 to 5 ms: what the real learner collects per second."""
    source = gym_source(load.LOAD, {"work": work})
    config = PPOConfig(num_envs=num_envs, update_steps=steps, hidden=(256, 256))
    most = 2 * workers
    for name, host in (
        ("shared", HostConfig(backend="shared", workers=workers)),
        ("async, 2 groups", HostConfig(backend="async", workers=workers, async_factor=2)),
        (f"async, {most} groups", HostConfig(backend="async", workers=workers, async_factor=most)),
    ):
        env = Watched(source, num_envs, host)
        learner, _ = make_learner(env, config, [0])
        env.reset()
        learner.collect()
        env.waits.clear()
        start = time.perf_counter()
        learner.collect()
        seconds = time.perf_counter() - start
        crew = env.crew
        assert isinstance(crew, WorkerCrew)
        chunk = max(stop - start for chunks in crew.chunks for start, stop in chunks)
        env.close()
        yield Uneven(name, num_envs * steps / seconds, sum(env.waits) / seconds, max(env.waits), 0.005 * chunk)


class Watched(Hosted):
    """Notes how long it was waited for."""

    def __init__(self, source: Source, num_envs: int, config: HostConfig):
        super().__init__(source, num_envs, config)
        self.waits: list[float] = []

    def take(self) -> int:
        """Waits, and notes how long."""
        start = time.perf_counter()
        group = super().take()
        self.waits.append(time.perf_counter() - start)
        return group


def waiting_share(seconds: float, workers: int) -> dict[str, float]:
    """The share of a core that this process uses while workers take 20 ms for a step."""
    source = gym_source(load.LOAD, {"low": 20, "high": 20})
    found = {}
    for name, host in (
        ("shared", {"backend": "shared"}),
        ("async", {"backend": "async", "async_factor": 2}),
        ("pipe", {"backend": "pipe"}),
    ):
        c = hosted(source, 2 * workers, name, workers=workers, **host)
        c.step()
        start, used = time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds:
            c.step()
        found[name] = (time.process_time() - used) / (time.perf_counter() - start)
        c.close()
    return found


class Cyborg(NamedTuple):
    """Games of CybORG in a backend."""

    name: str
    rate: float
    waits_per_episode: float  # times that the learner waited, in 100 steps of all games …
    games: int  # … for so many games each time


def cyborg(checkout: Path, python: Path | None, num_envs: int, workers: int, steps: int) -> Iterator[Cyborg]:
    """CybORG with its true state in every step: one process, pipes, shared memory, groups."""
    source = cyborg_source(checkout, python, red="bline", green=False, horizon=100, true_state_every=1)
    for name, host in (
        ("one process", {"backend": "shared", "workers": 1}),
        ("pipe", {"backend": "pipe", "workers": workers}),
        ("shared", {"backend": "shared", "workers": workers}),
        ("async", {"backend": "async", "workers": workers, "async_factor": 2}),
    ):
        env = Hosted(source, num_envs, HostConfig(**host))
        env.reset()
        rng, groups = np.random.default_rng(0), env.groups
        actions = rng.integers(0, 145, (steps + 1, num_envs))
        crew = env.crew
        assert isinstance(crew, WorkerCrew)
        crew.waits = 0
        start, done = time.perf_counter(), [0] * len(groups)
        for g, rows in enumerate(groups):
            env.send_group(g, actions[0][rows])
        for _ in range(steps * len(groups)):
            g = env.take()
            done[g] += 1
            if done[g] < steps:
                env.send_group(g, actions[done[g]][groups[g]])
        seconds = time.perf_counter() - start
        env.close()
        yield Cyborg(name, num_envs * steps / seconds, 100 * crew.waits / steps, num_envs // len(groups))
