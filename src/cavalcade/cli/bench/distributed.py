"""What it costs to spread work: each engine beside this process for the same work, and the constants of the network.

Everything runs on this machine, so that a figure says what an engine costs, not what more machines would give; that is
what `scaling` works out from the constants.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavalcade.bench.load import LOAD
from cavalcade.config import GYM_PPO, HostConfig, PPOConfig, RayConfig, SearchConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.errors import RunError
from cavalcade.fleet import connected
from cavalcade.ppo.fragments import FragmentLearner, Policy, Task, play
from cavalcade.ppo.learner import network_for
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.threads import use_torch_threads
from cavalcade.runs.directory import RunDirectory
from cavalcade.search.domains import subtasks_of
from cavalcade.search.engine import Search
from cavalcade.search.members import ORDER, SEARCH, Member
from cavalcade.search.pool import Pool
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.ray_crew import Host
from cavalcade.vector.source import gym_source

ORDERS = 16
_ROUNDS = 3
RANKS = PPOConfig(num_envs=200, update_steps=100, minibatches=4)  # what ranks are measured with
MESSAGES = 7  # of an update besides gradients: two each for returns, advantages and episodes, one for a checkpoint


class Constants(NamedTuple):
    """What a message and a byte cost, on loopback."""

    task: float  # seconds of a Ray task that brings and takes the state of an order, one after the other
    call: float  # seconds of an empty call of a Ray actor
    store: float  # bytes/s through Ray's object store, to an actor
    reduce: float  # seconds of the smallest all-reduce of two ranks (gloo)
    reduce_bytes: float  # bytes/s of a large one


def searches(seconds: float) -> dict[str, float]:
    """Seconds of the same trainings of orders in this process and as tasks of Ray, start and compilation aside."""
    base = replace(
        SearchConfig(), confirm=0, total_episodes=10**6, max_episodes=max(10, int(10 * seconds)), device="cpu"
    )
    base = replace(base, searcher="fixed", orders=_some_orders(base))
    slices = {"in tasks": RayConfig(), "in tasks of 8 orders": RayConfig(task_orders=8)}
    found = {"in this process": _timed_search(base)}
    with connected(""):
        warm = replace(base, engine="ray", max_episodes=2)
        _timed_search(warm)  # workers start, and load what is compiled
        for name, ray in slices.items():
            found[name] = _timed_search(replace(base, engine="ray", ray=ray))
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


def environments(seconds: float) -> dict[str, dict[str, float]]:
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
            found[case] = {what: _rate(make, seconds) for what, make in _ways(source, ppo)}
    return found


def _ways(source: Any, ppo: PPOConfig) -> Iterator[tuple[str, Callable[[], Any]]]:
    def here(backend: str, workers: int) -> Callable[[], Any]:
        def make() -> Any:
            env = Hosted(source, ppo.num_envs, HostConfig(backend=backend, workers=workers))  # pyright: ignore
            env.reset()
            return make_learner(env, replace(ppo, learner="torch"), [0])[0]

        return make

    def fragments(staleness: int) -> Callable[[], Any]:
        def make() -> Any:
            env = Hosted(source, ppo.num_envs, HostConfig(backend="ray", workers=2))
            env.reset()
            return FragmentLearner(env, ppo, [0], staleness=staleness, vtrace=True)

        return make

    yield "async, 2 workers", here("async", 2)
    yield "ray, step by step", here("ray", 2)
    yield "ray, rollouts, staleness 0", fragments(0)
    yield "ray, rollouts, staleness 2", fragments(2)


class Costs(NamedTuple):
    """What actors and learner of a training on Ray do and send."""

    play: float  # steps/s that an actor plays on a core
    learn: float  # steps/s that the learner learns from on a core
    step: float  # bytes of a step in a fragment
    weights: int  # bytes of a policy


def fragment_costs(source: Any, ppo: PPOConfig) -> Costs:
    """What a fragment costs to play, to send and to learn from, one core each."""
    use_torch_threads(1)
    host = Host(source, ppo.num_envs)
    host.env.reset()
    learner = make_learner(host.env, replace(ppo, learner="torch"), [0])[0]
    s = learner.state
    scaling = tuple(x.numpy() for x in (s.observation_count, s.observation_mean, s.observation_square))
    policy, task = Policy(0, s.weights.numpy(), scaling), Task(ppo, 0, 0, 0)
    fragment = play(host, policy, task)
    steps = ppo.num_envs * ppo.update_steps
    played = _best(lambda: play(host, policy, task), 3)
    learner.collect()
    learnt = _best(lambda: learner.update(0.0), 3)
    host.env.close()
    arrays = [*fragment.played.values(), fragment.out_of_time, fragment.final, fragment.last, *fragment.ended]
    return Costs(steps / played, steps / learnt, sum(x.nbytes for x in arrays) / steps, s.weights.numpy().nbytes)


def slice_bytes(config: SearchConfig) -> int:
    """Bytes that say where the training of an order stands."""
    pool = Pool(config, subtasks_of(config).orders(), 1, 1)
    pool.start(0, Member(0, SEARCH, ORDER, 0, 0, 1), None)
    policy, rest, games, _ = pool.save()
    tensors = [x.numpy() for part in (policy, rest) for x in part.values()]
    return sum(array.nbytes for array in (*tensors, *games.values()))


def gradient_bytes(config: PPOConfig) -> int:
    """Bytes of a gradient on CAGE-2."""
    _, spec = network_for(Cage2(1), config)
    return 4 * spec.size


def _rate(make: Callable[[], Any], seconds: float) -> float:
    learner = make()
    try:
        for _ in range(2):
            learner.collect()
            learner.update(0.0)
        begun, start = learner.state.clock, time.perf_counter()
        while time.perf_counter() - start < seconds:
            learner.collect()
            learner.update(0.0)
        return (learner.state.clock - begun) * learner.config.num_envs / (time.perf_counter() - start)
    finally:
        learner.env.close()


def ranks(seconds: float) -> dict[str, dict[str, float]]:
    """Steps/s of trainings on CAGE-2 in one process and over two ranks, by networks."""
    found: dict[str, dict[str, float]] = {}
    for hidden, learner in itertools.product(("64,64", "256,256"), ("fused", "torch")):
        row = found.setdefault(f"{hidden.replace(',', '-')}, {learner}", {})
        for name, count, threads in (("1 thread", 1, 1), ("2 threads", 1, 2), ("2 ranks of 1 thread", 2, 1)):
            row[name] = _rank_rate(hidden, learner, count, threads, seconds)
    return found


def _rank_rate(hidden: str, learner: str, count: int, threads: int, seconds: float) -> float:
    """Steps/s by the log of a run, its first updates left out."""
    rows = "auto" if learner == "fused" else "plain"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        command = [sys.executable, "-m", "cavalcade", "train", "cage2"]
        command += ["--num-envs", str(RANKS.num_envs), "--minibatches", str(RANKS.minibatches)]
        command += ["--hidden", hidden, "--learner", learner, "--rows", rows, "--device", "cpu"]
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


def constants(state: int) -> Constants:
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
from cavalcade.ppo.ranks import ranks_from
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
