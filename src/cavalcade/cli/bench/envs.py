"""`cavalcade bench envs`: how fast environments are hosted, by backend, beside others.

Ours and Gymnasium's loop run in turns, best of several rounds. Others that start a process per environment run by
themselves. Nothing else should run meanwhile. PufferLib's workers are measured by `benchmarks/peers/puffer.py`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np

from cavalcade.cli.bench import kills, write_statistics
from cavalcade.cli.bench.load import LOAD
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.envs.cage2.cyborg import check_clone, cyborg_source
from cavalcade.ppo.factory import make_engine
from cavalcade.runs.waiting import waiting
from cavalcade.tuning import machine
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.pool import ProcessPool
from cavalcade.vector.source import Source, gym_source

CHEAP = "CartPole-v1"
_SYNC = "Gymnasium SyncVectorEnv"
_OURS = ("serial", "pipe", "shared", "async")
_ROUNDS = 12
_STEPS = 60  # of uneven length

Part = Literal["cheap", "scaling", "uneven", "waiting", "cyborg", "kills"]
Step = Callable[[], int]  # does something and returns how many environments stepped


@dataclass(frozen=True)
class Options:
    """Measures how environments are hosted: all backends, and those of others, in one run."""

    parts: tuple[Part, ...] = ("cheap", "scaling", "uneven", "waiting")
    """What to measure; cyborg needs a clone, kills takes minutes."""
    seconds: float = 5.0
    """Time for each row."""
    envs: tuple[int, ...] = (64, 512)
    """Numbers of cheap environments."""
    workers: int = 2
    """Worker processes."""
    kills: int = 500
    """With part kills: workers to kill during one training."""
    cyborg: Path | None = None
    """With part cyborg: a clone of cage-challenge/cage-challenge-2."""
    cyborg_python: Path | None = None
    """With part cyborg: an interpreter with CybORG's old dependencies."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints table by table."""
    options = parse(Options, args, "bench envs")
    check_seconds(options.seconds)
    check_folder("json", options.json)
    at_least("workers", options.workers, 1)
    at_least("kills", options.kills, 1)
    for count in options.envs:
        at_least("envs", count, 4 * options.workers)
    if "cyborg" in options.parts:
        if options.cyborg is None:
            raise ConfigError("parts has cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2")
        check_clone(options.cyborg)
    figures: dict[str, Any] = {"machine": machine.describe()}
    print(machine.line(), flush=True)
    tables: dict[str, Callable[[Options], Any]] = {
        "cheap": _cheap, "scaling": _scaling, "uneven": _uneven,
        "waiting": _waiting, "cyborg": _cyborg, "kills": _kills,
    }  # fmt: skip
    for part in options.parts:
        with waiting(f"measuring: {part}"):
            figures[part] = tables[part](options)
    write_statistics(options.json, figures)
    return 0


# Contenders: what steps environments.


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
    shape, groups = (64, *env.shared.action.shape), env.groups
    drawn = rng.integers(0, env.spec.action_space.n, shape)  # pyright: ignore[reportAttributeAccessIssue]
    if len(groups) == 1:
        return Contender(name, _stepping(lambda i: env.step(drawn[i % 64]), num_envs), env.close)
    for g, rows in enumerate(groups):
        env.send_group(g, drawn[0][rows])
    counts = [0]

    def step() -> int:
        g = env.wait_any()
        counts[0] += 1
        env.send_group(g, drawn[counts[0] % 64][groups[g]])
        return groups[g].stop - groups[g].start

    return Contender(name, step, env.close)


def in_process(env: Environment, name: str) -> Contender:
    """Ours that steps all environments in this process, with random actions."""
    env.reset()
    rng, n = np.random.default_rng(0), env.spec.num_envs
    drawn = rng.integers(0, env.spec.action_space.n, (64, n))  # pyright: ignore[reportAttributeAccessIssue]
    return Contender(name, _stepping(lambda i: env.step(drawn[i % 64]), n), env.close)


def _stepping(step: Callable[[int], object], num_envs: int) -> Step:
    count = [0]

    def once() -> int:
        step(count[0])
        count[0] += 1
        return num_envs

    return once


def peer(name: str, env: Any, num_envs: int) -> Contender:
    """A batch of the cheap environment in another host, by random actions."""
    drawn = np.random.default_rng(0).integers(0, 2, (64, num_envs))
    return Contender(name, _stepping(lambda i: env.step(drawn[i % 64]), num_envs), env.close)


def _gymnasium_sync(num_envs: int) -> Contender:
    """Gymnasium's own loop."""
    return _gymnasium(_SYNC, gymnasium.vector.SyncVectorEnv, num_envs)


def _gymnasium_async(num_envs: int) -> Contender:
    """Gymnasium's processes, one per environment, with shared memory."""
    return _gymnasium("Gymnasium AsyncVectorEnv", gymnasium.vector.AsyncVectorEnv, num_envs)


def _gymnasium(name: str, kind: Any, num_envs: int) -> Contender:
    env = kind([lambda: gymnasium.make(CHEAP) for _ in range(num_envs)])
    env.reset(seed=0)
    return peer(name, env, num_envs)


def _sb3_subproc(num_envs: int) -> Contender | None:
    """Stable-Baselines3's processes, if it is installed."""
    try:
        from stable_baselines3.common.vec_env import SubprocVecEnv
    except ImportError:
        return None
    env = SubprocVecEnv([lambda: gymnasium.make(CHEAP) for _ in range(num_envs)], start_method="fork")
    env.reset()
    return peer("SB3 SubprocVecEnv", env, num_envs)


def rates(contenders: Sequence[Contender], seconds: float) -> dict[str, float]:
    """Environment steps per second of each, in turns, best of several rounds."""
    best = {c.name: 0.0 for c in contenders}
    for _ in range(_ROUNDS):
        for c in contenders:
            steps, start = 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < seconds / _ROUNDS:
                steps += c.step()
            best[c.name] = max(best[c.name], steps / taken)
    return best


# Cheap steps: CartPole in every backend, and in other hosts that are installed.


def cheap(num_envs: int, workers: int, seconds: float, others: bool = True) -> dict[str, float]:
    """Steps per second of backends and other hosts on an environment whose step takes microseconds."""
    source = gym_source(CHEAP)
    with ExitStack() as stack:
        quiet = [
            hosted(source, num_envs, "serial", backend="serial"),
            hosted(source, num_envs, "pipe", backend="pipe", workers=workers),
            hosted(source, num_envs, "shared", backend="shared", workers=workers),
            hosted(source, num_envs, "async", backend="async", workers=workers, async_factor=2),
        ]
        if others:
            quiet.append(_gymnasium_sync(num_envs))
        for c in quiet:
            stack.callback(c.close)
        found = rates(quiet, seconds)
        if others:  # hundreds of processes disturb the rest: these run by themselves
            for make in (_gymnasium_async, _sb3_subproc):
                c = make(num_envs)
                if c:
                    found |= rates([c], seconds)
                    c.close()
    return found


def print_cheap(found: dict[int, dict[str, float]], workers: int) -> None:
    """The table of `cheap` by number of environments."""
    print(f"\n{CHEAP}, steps/s, {workers} workers" + "".join(f"{n:>22}" for n in found))
    for name in next(iter(found.values())):
        row = "".join(f"{r[name]:>13,.0f} {r[name] / r[_SYNC]:>6.2f}× " for r in found.values())
        print(f"  {name:<30}{row}")
    for n, r in found.items():
        processes = {name: rate for name, rate in r.items() if name not in (*_OURS, _SYNC)}
        best = max(processes.values())
        for name in ("shared", "async"):
            print(f"  {name} at {n}: {r[name] / best:.1f}× the best of {', '.join(processes)}")


def _cheap(options: Options) -> Any:
    found = {n: cheap(n, options.workers, options.seconds) for n in options.envs}
    print_cheap(found, options.workers)
    return found


def _scaling(options: Options) -> Any:
    """Shared and async over workers and environments."""
    workers, counts = (1, 2, 4), (16, 64, 256, 1024)
    print(f"\n{CHEAP}, steps/s of shared / async" + "".join(f"{n:>9} envs   " for n in counts))
    found = {}
    for w in workers:
        rows = [cheap(n, w, options.seconds / 2, others=False) for n in counts]
        found[w] = dict(zip(counts, rows, strict=True))
        print(f"  {w} workers" + " " * 22 + "".join(f"{r['shared']:>8,.0f}/{r['async']:<8,.0f}" for r in rows))
    return found


# Uneven steps: 1 to 5 ms, waited for and worked for.


class Uneven(NamedTuple):
    """Collecting experience from steps of uneven length."""

    name: str
    rate: float  # environment steps per second, the policy's forward passes included
    idle: float  # share of time that the engine waited
    longest_wait: float  # seconds
    longest_step: float  # seconds that a step of a group can take at most


def _uneven_rates(work: bool, num_envs: int, workers: int, steps: int) -> Iterator[Uneven]:
    """Shared against async on steps of 1 to 5 ms: what a real engine collects per second."""
    source = gym_source(LOAD, {"work": work})
    config = PPOConfig(num_envs=num_envs, rollout_steps=steps, hidden=(256, 256))
    most = 2 * workers
    for name, host in (
        ("shared", HostConfig(backend="shared", workers=workers)),
        ("async, 2 groups", HostConfig(backend="async", workers=workers, async_factor=2)),
        (f"async, {most} groups", HostConfig(backend="async", workers=workers, async_factor=most)),
    ):
        env = _Watched(source, num_envs, host)
        engine, _ = make_engine(env, config, [0])
        env.reset()
        engine.collect()
        env.waits.clear()
        start = time.perf_counter()
        engine.collect()
        seconds = time.perf_counter() - start
        pool = env.pool
        assert isinstance(pool, ProcessPool)
        chunk = max(stop - start for chunks in pool.chunks for start, stop in chunks)
        env.close()
        yield Uneven(name, num_envs * steps / seconds, sum(env.waits) / seconds, max(env.waits), 0.005 * chunk)


class _Watched(Hosted):
    """Notes how long it was waited for."""

    def __init__(self, source: Source, num_envs: int, config: HostConfig):
        super().__init__(source, num_envs, config)
        self.waits: list[float] = []

    def wait_any(self) -> int:
        start = time.perf_counter()
        group = super().wait_any()
        self.waits.append(time.perf_counter() - start)
        return group


def _uneven(options: Options) -> Any:
    found = {}
    for title, work, workers in (
        ("waiting for another program, 8 workers", False, 8),
        (f"computing, {options.workers} workers", True, options.workers),
    ):
        print(f"\nsteps of 1 to 5 ms, {title}, 16 environments, with the learner's forward passes")
        print(
            f"  {'':<18}{'steps/s':>9}{'':>8}{'learner waits':>15}{'longest wait':>14}{'longest step of a group':>25}"
        )
        first = None
        for u in _uneven_rates(work, 16, workers, _STEPS):
            first = first or u.rate
            print(
                f"  {u.name:<18}{u.rate:>9,.0f}{u.rate / first:>7.2f}×{u.idle:>15.0%}{1000 * u.longest_wait:>11.1f} ms"
                f"{1000 * u.longest_step:>22.1f} ms",
                flush=True,
            )
            found[f"{title}: {u.name}"] = u._asdict()
    return found


# Waiting: what the parent costs meanwhile.


def _waiting_share(seconds: float, workers: int) -> dict[str, float]:
    """The share of a core that this process uses while workers take 20 ms for a step."""
    source = gym_source(LOAD, {"low": 20, "high": 20})
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


def _waiting(options: Options) -> Any:
    found = _waiting_share(min(options.seconds, 3.0), options.workers)
    shares = ", ".join(f"{name} {share:.1%}" for name, share in found.items())
    print(f"\nCPU share of the parent while workers take 20 ms for a step: {shares}", flush=True)
    return found


# CybORG, with its true state in every step.


class Cyborg(NamedTuple):
    """Games of CybORG in a backend."""

    name: str
    rate: float
    waits_per_episode: float  # times that the engine waited, in 100 steps of all games …
    games: int  # … for so many games each time


def _cyborg_rates(checkout: Path, python: Path | None, num_envs: int, workers: int, steps: int) -> Iterator[Cyborg]:
    """One process, pipes, shared memory, groups."""
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
        pool = env.pool
        assert isinstance(pool, ProcessPool)
        pool.waits = 0
        start, done = time.perf_counter(), [0] * len(groups)
        for g, rows in enumerate(groups):
            env.send_group(g, actions[0][rows])
        for _ in range(steps * len(groups)):
            g = env.wait_any()
            done[g] += 1
            if done[g] < steps:
                env.send_group(g, actions[done[g]][groups[g]])
        seconds = time.perf_counter() - start
        env.close()
        yield Cyborg(name, num_envs * steps / seconds, 100 * pool.waits / steps, num_envs // len(groups))


def _cyborg(options: Options) -> Any:
    assert options.cyborg is not None
    print(f"\nCybORG with true state, 20 games{'':<14}{'steps/s':>10}{'':>9}waits in an episode of 100 steps")
    found, first = {}, None
    for c in _cyborg_rates(options.cyborg, options.cyborg_python, 20, options.workers, 100):
        first = first or c.rate
        waits = f"{c.waits_per_episode:>12,.0f} for {c.games} games each"
        print(f"  {c.name:<44}{c.rate:>10,.0f}{c.rate / first:>8.2f}×{waits}", flush=True)
        found[c.name] = c._asdict()
    return found


def _kills(options: Options) -> Any:
    """Workers killed all through a training."""
    figures = {}
    for name, way in kills.WAYS.items():
        found = kills.hail(options.kills, way, workers=options.workers)
        print(
            f"\n{name}: {found.kills} workers killed during a training of {found.updates} updates in "
            f"{found.seconds:.0f} s: {found.transitions:,} transitions, {found.wrong} of them lost, repeated or out of "
            f"order; {found.broken} episodes broken off; {found.restarts} restarts; {found.handles} files left open",
            flush=True,
        )
        figures[name] = found._asdict()
    return figures
