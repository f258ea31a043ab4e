"""`cavalcade bench distributed`: what it costs to spread work with Ray and torchrun, beside this process.

Everything runs on this machine, so that a figure says what spreading costs, not what more machines would give:
`benchmarks/scaling.py` works that out from the figures.
"""

import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from cavalcade.cli.bench import write_statistics
from cavalcade.cli.bench.load import LOAD
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.errors import RunError
from cavalcade.core.jit import all_threads
from cavalcade.core.ray_session import connected
from cavalcade.core.threads import use_torch_threads
from cavalcade.envs.cage2 import Cage2
from cavalcade.ppo.collectors.fragments import FragmentTorchEngine, fragment_plan, policy_values
from cavalcade.ppo.engine import network_for
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.waiting import waiting
from cavalcade.search.config import RayConfig, SearchConfig
from cavalcade.search.domains import subtasks_of
from cavalcade.search.members import ORDER, SEARCHING, Member
from cavalcade.search.pool import Pool
from cavalcade.search.run import Search
from cavalcade.targets.gym import GYM_PPO
from cavalcade.tuning import machine
from cavalcade.vector.hosted import Hosted, hosted_here
from cavalcade.vector.ray_fragments import Task, play
from cavalcade.vector.ray_pool import Host
from cavalcade.vector.source import Source, gym_source

ORDERS = 16  # that are trained
RANKS = PPOConfig(num_envs=200, rollout_steps=100, minibatches=4)  # what ranks are measured with
_ROUNDS = 3
_PARTS = ("search", "environments", "ranks", "scaling")


@dataclass(frozen=True)
class Options:
    """Does the same work here, on Ray and over ranks, all on this machine. Takes about ten minutes."""

    parts: tuple[Literal["search", "environments", "ranks", "scaling"], ...] = _PARTS
    """search: trainings of orders; environments: hosted ones; ranks: torchrun; scaling: what messages cost."""
    seconds: float = 10.0
    """Time for each measurement, about."""
    networks: tuple[Literal["64-64", "256-256"], ...] = ("64-64", "256-256")
    """Hidden layers of the part ranks."""
    engines: tuple[Literal["cpu", "torch"], ...] = ("cpu", "torch")
    """Engines of the part ranks."""
    json: Path | None = None
    """Write the raw measurements to this file."""


def run(args: list[str]) -> int:
    """Prints each part as soon as it is measured."""
    options = parse(Options, args, "bench distributed")
    check_seconds(options.seconds)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe(), "seconds": options.seconds}
    print(machine.line())
    measure = {"search": _search, "environments": _environments, "ranks": _ranks, "scaling": _scaling}
    for part in options.parts:
        figures[part] = measure[part](options)
    write_statistics(options.json, figures)
    return 0


def _beside_first(found: dict[str, float], form: str) -> None:
    """A table of figures, each also as a multiple of the first."""
    first = next(iter(found.values()))
    for name, figure in found.items():
        print(f"    {name:<28}{figure:>10{form}}{figure / first:8.2f}×", flush=True)


# Search: the same trainings of orders.


def updates_of(seconds: float) -> int:
    """Updates of each order in a search of about so many seconds."""
    return max(10, int(10 * seconds))


def _searches(seconds: float) -> dict[str, float]:
    """Seconds of the same trainings of orders in this process and as tasks of Ray, start and compilation aside."""
    base = SearchConfig(confirm=0, total_episodes=10**6, max_episodes=updates_of(seconds), device="cpu")
    base = replace(base, searcher="fixed", orders=_some_orders(base))
    sizes = {"in tasks": RayConfig(), "in tasks of 8 orders": RayConfig(task_orders=8)}
    found = {"in this process": _timed_search(base)}
    with connected(""):
        _timed_search(replace(base, executor="ray", max_episodes=2))  # workers start, and load what is compiled
        for name, ray in sizes.items():
            found[name] = _timed_search(replace(base, executor="ray", ray=ray))
    return found


def _some_orders(config: SearchConfig) -> tuple[str, ...]:
    subtasks = subtasks_of(config)
    return tuple(subtasks.text(order) for order in subtasks.orders()[:: 120 // ORDERS][:ORDERS])


def _timed_search(config: SearchConfig) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder, "run"), SearchConfig)
        with run.locked():
            search = Search(run, config)
            start = time.perf_counter()
            while not search.done:
                list(search.advance())
            taken = time.perf_counter() - start
            search.close()
    return taken


def _search(options: Options) -> dict[str, float]:
    with waiting("training orders here and on Ray"):
        found = _searches(options.seconds)
    print("\nsearch: the same 16 orders trained and scored, seconds")
    _beside_first(found, ".2f")
    return found


# Environments: training on hosted ones.


def _environment_rates(seconds: float) -> dict[str, dict[str, float]]:
    """Steps/s of training on hosted environments, cheap and slow, by backend."""
    cases: dict[str, tuple[str, dict[str, Any], int]] = {
        "CartPole": ("CartPole-v1", {}, 64),
        "steps of 1 ms": (LOAD, {"low": 1.0, "high": 1.0, "work": True}, 16),
    }
    found = {}
    use_torch_threads(1)
    with connected(""):
        for case, (name, options, n) in cases.items():
            source, ppo = gym_source(name, options), replace(GYM_PPO, num_envs=n)
            found[case] = {what: _rate(make(), seconds) for what, make in _ways(source, ppo)}
    return found


def _ways(source: Source, ppo: PPOConfig) -> Iterator[tuple[str, Callable[[], HostEngine]]]:
    def env(backend: Literal["async", "ray"]) -> Hosted:
        made = Hosted(source, ppo.num_envs, HostConfig(backend=backend, workers=2))
        made.reset()
        return made

    def here(backend: Literal["async", "ray"]) -> HostEngine:
        return make_engine(env(backend), replace(ppo, engine="torch"), [0])[0]

    def rollouts(staleness: int) -> HostEngine:
        return FragmentTorchEngine(env("ray"), ppo, [0], staleness=staleness, vtrace=True)

    yield "async, 2 workers", lambda: here("async")
    yield "ray, step by step", lambda: here("ray")
    yield "ray, rollouts, staleness 0", lambda: rollouts(0)
    yield "ray, rollouts, staleness 2", lambda: rollouts(2)


def _rate(engine: HostEngine, seconds: float) -> float:
    try:
        for _ in range(2):
            engine.collect()
            engine.update(0.0)
        begun, start = engine.counters.clock, time.perf_counter()
        while time.perf_counter() - start < seconds:
            engine.collect()
            engine.update(0.0)
        return (engine.counters.clock - begun) * engine.num_envs / (time.perf_counter() - start)
    finally:
        engine.env.close()


def _environments(options: Options) -> dict[str, dict[str, float]]:
    with waiting("training on hosted environments"):
        found = _environment_rates(options.seconds)
    print("\nenvironments: training included, two workers or actors, steps/s")
    for case, rates in found.items():
        print(f"  {case}")
        _beside_first(rates, ",.0f")
    return found


# Ranks: one training over processes.


def _rank_rates(options: Options) -> dict[str, dict[str, float]]:
    """Steps/s of trainings on CAGE-2 in one process and over two ranks, by networks."""
    found: dict[str, dict[str, float]] = {}
    for network, engine in itertools.product(options.networks, options.engines):
        row = found.setdefault(f"{network}, {engine}", {})
        for name, count, threads in (("1 thread", 1, 1), ("2 threads", 1, 2), ("2 ranks of 1 thread", 2, 1)):
            row[name] = _rank_rate(network.replace("-", ","), engine, count, threads, options.seconds)
    return found


def _rank_rate(hidden: str, engine: str, count: int, threads: int, seconds: float) -> float:
    """Steps/s by the log of a run, its first updates left out."""
    dedup = "auto" if engine == "cpu" else "off"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = [sys.executable, "-m", "cavalcade", "train", "cage2"]
        command += ["--num-envs", str(RANKS.num_envs), "--minibatches", str(RANKS.minibatches)]
        command += ["--hidden", hidden, "--engine", engine, "--dedup", dedup, "--device", "cpu"]
        command += ["--threads", str(threads), "--episodes", "1000000", "--run", str(run), "--quiet"]
        with _launched(command, count) as process:
            begun, metrics = time.monotonic(), run / "metrics.jsonl"
            while (not metrics.exists() or not metrics.stat().st_size) and process.poll() is None:
                time.sleep(0.1)
                if time.monotonic() - begun > 300:
                    break
            time.sleep(seconds + 2.5)  # a log is held back for two seconds at most
            if not metrics.exists():
                raise RunError(f"the training did not begin: {' '.join(command)}")
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    first, last = lines[min(5, len(lines) // 2)], lines[-1]
    return (last["steps"] - first["steps"]) / max(last["seconds"] - first["seconds"], 1e-9)


@contextmanager
def _launched(command: list[str], count: int) -> Iterator[subprocess.Popen]:
    if count > 1:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(count), "--standalone", "-m", "--"]
        command = [command[0], *launcher, *command[2:]]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def _ranks(options: Options) -> dict[str, dict[str, float]]:
    with waiting("training over ranks"):
        found = _rank_rates(options)
    print("\nranks: CAGE-2, 200 environments × 100 steps, 4 epochs × 4 minibatches, steps/s")
    for case, rates in found.items():
        print(f"  {case:<18}" + "   ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()), flush=True)
    return found


# Scaling: what messages cost.


class Constants(NamedTuple):
    """What a message and a byte cost, on loopback."""

    task: float  # seconds of a Ray task that brings and takes the state of an order, one after the other
    call: float  # seconds of an empty call of a Ray actor
    store: float  # bytes/s through Ray's object store, to an actor
    reduce: float  # seconds of the smallest all-reduce of two ranks (gloo)
    reduce_bytes: float  # bytes/s of a large one


def _constants(state: int) -> Constants:
    """What messages cost here; state: bytes that a task brings and takes."""
    with connected("") as ray:
        task = ray.remote(num_cpus=1)(_same)
        actor = ray.remote(num_cpus=1)(_Nobody).remote()
        block, brought = np.zeros(2**24, np.uint8), np.zeros(state, np.uint8)
        ray.get([task.remote(brought), actor.do.remote(block)])
        one = _best(lambda: ray.get(task.remote(brought)), 100)
        two = _best(lambda: ray.get(actor.do.remote()), 100)
        large = _best(lambda: ray.get(actor.do.remote(block)), 5)
    small_sum, large_sum, size = _reduction()
    return Constants(one, two, block.nbytes / large, small_sum, size / max(large_sum - small_sum, 1e-9))


def _same(state: Any) -> Any:
    return state


class _Nobody:
    def do(self, block: Any = None) -> int:
        return 0 if block is None else int(block[::4096].sum())


def _best(work: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(times):
            work()
        found.append((time.perf_counter() - start) / times)
    return min(found)


_SUMS = """
import time, numpy as np
from cavalcade.ppo.distributed import ranks_from
ranks, found, size = ranks_from(), [], 4_000_000
for array, times in ((np.zeros(16, np.float32), 200), (np.zeros(size // 4, np.float32), 20)):
    ranks.sum_(array)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(times):
            ranks.sum_(array)
        best = min(best, (time.perf_counter() - start) / times)
    found.append(best)
if ranks.first:
    print(*found, size)
ranks.close()
"""


def _reduction() -> tuple[float, float, int]:
    """Seconds of a small and of a large sum over two ranks, and the bytes of the large one."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "sums.py")
        script.write_text(_SUMS)
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    small, large, size = out.split()
    return float(small), float(large), int(size)


class Costs(NamedTuple):
    """What actors and learner of a training on Ray do and send."""

    play: float  # steps/s that an actor plays on a core
    learn: float  # steps/s that the learner learns from on a core
    step: float  # bytes of a step in a rollout
    weights: int  # bytes of a policy


def _rollout_costs(source: Source, ppo: PPOConfig) -> Costs:
    """What a rollout costs to play, to send and to learn from, one core each."""
    use_torch_threads(1)
    host = Host(source, ppo.num_envs, hosted_here)
    host.env.reset()
    engine = make_engine(host.env, replace(ppo, engine="torch"), [0])[0]
    policy, task = policy_values(engine), Task(fragment_plan(engine, host.env.source, 1), 0, math.inf)
    fragment = play(host, policy, task)
    assert fragment
    steps = ppo.num_envs * ppo.rollout_steps
    played = _best(lambda: play(host, policy, task), 3)
    engine.collect()
    learnt = _best(lambda: engine.update(0.0), 3)
    host.env.close()
    return Costs(steps / played, steps / learnt, sum(x.nbytes for x in fragment.fields.values()) / steps, policy.nbytes)


def _state_bytes(config: SearchConfig) -> int:
    """Bytes that say where the training of an order stands."""
    pool = Pool(config, subtasks_of(config).orders(), 1, 1)
    pool.start(0, Member(0, SEARCHING, ORDER, 0, 0, 1), None)
    whole = pool.save().snapshot
    arrays = [*whole.policy.values(), *whole.learner.values(), *whole.games.values()]
    return sum(array.nbytes for array in arrays)


def _gradient_bytes(config: PPOConfig) -> int:
    """Bytes of a gradient on CAGE-2."""
    _, spec = network_for(Cage2(1), config)
    return 4 * spec.size


def _scaling(options: Options) -> dict[str, Any]:
    with waiting("measuring messages"):
        state, gradient = _state_bytes(SearchConfig()), _gradient_bytes(RANKS)
        c = _constants(state)
        costs = _rollout_costs(gym_source("CartPole-v1"), GYM_PPO)
    print(
        f"\nmessages on loopback: Ray task with its state {c.task * 1e3:.2f} ms, actor call {c.call * 1e3:.2f} ms, "
        f"object store {c.store / 1e9:.2f} GB/s; all-reduce of two ranks {c.reduce * 1e3:.2f} ms, "
        f"{c.reduce_bytes / 1e9:.2f} GB/s\n"
        f"CartPole: an actor plays {costs.play:,.0f} steps/s and sends {costs.step:.0f} bytes each, a learner learns "
        f"from {costs.learn:,.0f}/s on a core, a policy is {costs.weights:,} bytes\n"
        f"CAGE-2: where the training of an order stands is {state:,} bytes, a gradient {gradient:,}"
    )
    found = {"constants": c._asdict(), "costs": costs._asdict(), "state": state, "gradient": gradient}
    return found | {"threads": all_threads()}
