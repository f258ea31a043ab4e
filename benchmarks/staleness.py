"""Collecting while learning (--staleness) against waiting for each other, all ways in turns.

    python benchmarks/staleness.py ROW... [--seconds 6] [--rounds 2] [--seeds 5] [--cyborg CLONE]

A row takes about a minute on two cores, learning a few.

compute:  steps of 1 to 5 ms that compute, two workers and a learner of 256-256, against two processes without a learner
wait:     steps of 1 to 5 ms that wait, eight workers, 16 environments, against eight workers that never wait
cartpole: training on CartPole, two workers, with either learner
cyborg:   training in CybORG, --games 20 (--cyborg CLONE, --cyborg-python), against two processes without a learner
mettagrid: whole runs of the package's MettaGrid, forage with 24 agents, 16 arenas, LSTM-128, two workers
states:   steps in CybORG (--cyborg CLONE), 20 games in two workers, the true state read every 1, 10, 20 steps and never
learning: returns at equal steps, staleness 0 and 2: CartPole, Acrobot, and CAGE-2 hosted as a Gymnasium environment
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np

from cavalcade.cli.bench.load import LOAD
from cavalcade.cli.bench.mettagrid_runs import measure as run_for
from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.slices import short_slices
from cavalcade.core.threads import use_threads, use_torch_threads
from cavalcade.envs.cage2.cyborg import cyborg_source
from cavalcade.ppo.collectors.fragments import fragment_engine
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.targets.gym import GYM_PPO
from cavalcade.vector import worker
from cavalcade.vector.buffers import layout
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import Source, gym_source

SLOW = PPOConfig(num_envs=16, rollout_steps=32, minibatches=4, hidden=(256, 256))
IN_CYBORG = ("cyborg", "states")  # rows
LEARNT = {  # environment, settings, steps
    "CartPole-v1": (GYM_PPO, 100_000),
    "Acrobot-v1": (GYM_PPO, 150_000),
    "cavalcade/Cage2-v0": (PPOConfig(num_envs=64, rollout_steps=100, minibatches=4), 400_000),
}


@contextmanager
def training(source: Source, ppo: PPOConfig, seed: int = 0, **host: object) -> Iterator[Engine]:
    """An engine on hosted environments; with staleness, on fragments."""
    config = HostConfig(**host)  # pyright: ignore[reportArgumentType]
    env = Hosted(source, ppo.num_envs, config, seed=seed)
    engine = fragment_engine(env, ppo, [seed], config) if config.lag else make_engine(env, ppo, [seed])[0]
    (use_threads if isinstance(engine, CpuEngine) else use_torch_threads)(numba.get_num_threads())
    env.reset()
    try:
        yield engine
    finally:
        env.close()


def rate(engine: Engine, seconds: float) -> float:
    """Environment steps per second of training, its first updates left out."""
    for _ in range(3):
        engine.collect()
        engine.update(0.0)
    begun, start = engine.counters.clock, time.perf_counter()
    while time.perf_counter() - start < seconds:
        engine.collect()
        engine.update(0.0)
    return (engine.counters.clock - begun) * engine.num_envs / (time.perf_counter() - start)


def turns(ways: dict[str, Callable[[], float]], rounds: int, bound: str | float) -> None:
    """Measures all ways in turns; prints the best of each, and its ratio to a bound (a way, or a number)."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, measure in ways.items():
            found[name].append(measure())
    limit = max(found[bound]) if isinstance(bound, str) else bound
    for name, rates in found.items():
        every = ", ".join(f"{x:,.0f}" for x in rates)
        print(f"  {name:<32}{max(rates):>10,.0f} steps/s{max(rates) / limit:>7.2f}×   ({every})", flush=True)


BARE = """
import json, runpy, sys, time
import numpy as np
task = json.loads(sys.argv[1])
worker = runpy.run_path(task["worker"])
fields = worker["arrays"](bytearray(task["size"]), task["places"])
rows = worker["load"](task["maker"]).make_rows(fields, 0, task["count"], task["options"])
fields["index"][:], fields["wanted"][:] = np.arange(task["count"]), True
rows.reset()
print("ready", flush=True)
seconds = float(sys.stdin.readline())
rng, steps, start = np.random.RandomState(0), 0, time.perf_counter()
while time.perf_counter() - start < seconds:
    fields["action"][:] = rng.randint(0, task["actions"], task["count"])
    rows.step()
    steps += task["count"]
print(steps / (time.perf_counter() - start))
"""


def bare(source: Source, num_envs: int, workers: int, seconds: float) -> float:
    """Steps per second of processes that only step their share of the environments, with random actions."""
    count = num_envs // workers
    places, size = layout(count, source.shapes, 1, 1)
    task = {"places": places, "size": size, "maker": source.maker, "options": source.options, "count": count}
    task |= {"worker": worker.__file__, "actions": int(source.shapes.actions.masks)}
    command = [source.python, "-W", "ignore", "-c", BARE, json.dumps(task)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(workers)]
    for process in processes:
        assert process.stdout
        process.stdout.readline()
    for process in processes:
        assert process.stdin
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    return sum(float(process.communicate()[0].split()[-1]) for process in processes)


def sources(clone: list[str]) -> dict[str, Source]:
    """The environments that are measured."""
    found = {"compute": gym_source(LOAD, {"work": True}), "wait": gym_source(LOAD)}
    if clone:
        python = Path(clone[1]) if len(clone) > 1 else None
        found["cyborg"] = cyborg_source(Path(clone[0]), python, red="bline", green=False, horizon=100)
    return found


def steps_that_compute(given: argparse.Namespace, name: str = "compute", ppo: PPOConfig = SLOW) -> None:
    source = sources(given.clone)[name]

    def trained(**host: object) -> float:
        with training(source, ppo, workers=2, **host) as engine:
            return rate(engine, given.seconds)

    ways: dict[str, Callable[[], float]] = {
        "two processes, no learner": lambda: bare(source, ppo.num_envs, 2, given.seconds),
        "shared": lambda: trained(backend="shared"),
        "async": lambda: trained(),
        "staleness 2": lambda: trained(staleness=2),
    }
    turns(ways, given.rounds, "two processes, no learner")


def steps_that_wait(given: argparse.Namespace) -> None:
    source = sources([])["wait"]

    def trained(**host: object) -> float:
        with training(source, SLOW, workers=8, **host) as engine:
            return rate(engine, given.seconds)

    ways: dict[str, Callable[[], float]] = {
        "eight processes, no learner": lambda: bare(source, SLOW.num_envs, 8, given.seconds),
        "shared": lambda: trained(backend="shared"),
        "async, 16 groups": lambda: trained(async_factor=16),
        "staleness 2": lambda: trained(staleness=2),
    }
    turns(ways, given.rounds, 8 / 0.003)


def cartpole(given: argparse.Namespace) -> None:
    source = gym_source("CartPole-v1")
    for learner in ("torch", "cpu"):

        def trained(learner: str = learner, **host: object) -> float:
            with training(source, replace(GYM_PPO, engine=learner), workers=2, **host) as engine:
                return rate(engine, given.seconds)

        print(f" {learner} learner")
        ways: dict[str, Callable[[], float]] = {
            "async": trained,
            "staleness 2": lambda run=trained: run(staleness=2),
        }
        turns(ways, given.rounds, "async")


def mettagrid(given: argparse.Namespace) -> None:
    sizes = "--num-envs 16 --batch-size 24576 --minibatch-size 6144 --workers 2 --simulator package --device cpu"

    def trained(*more: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return run_for([*sizes.split(), *more], given.seconds, Path(folder, "run")).rate

    ways: dict[str, Callable[[], float]] = {
        "shared": lambda: trained("--backend", "shared"),
        "async": trained,
        "staleness 2": lambda: trained("--staleness", "2"),
    }
    turns(ways, given.rounds, "async")


def true_states(given: argparse.Namespace) -> None:
    python = Path(given.cyborg_python) if given.cyborg_python else None

    def stepped(every: int) -> float:
        task = {"red": "bline", "green": False, "horizon": 100, "true_state_every": every}
        env = Hosted(cyborg_source(Path(given.cyborg), python, **task), 20, HostConfig(backend="shared", workers=2))
        try:
            env.reset()
            rng, steps, start = np.random.default_rng(0), 0, time.perf_counter()
            while time.perf_counter() - start < given.seconds:
                env.step(rng.integers(0, env.spec.action_space.n, 20))
                steps += 20
            return steps / (time.perf_counter() - start)
        finally:
            env.close()

    ways = {"never": 0, "every 20 steps": 20, "every 10 steps": 10, "every step": 1}
    turns({name: lambda every=every: stepped(every) for name, every in ways.items()}, given.rounds, "never")


def learning(given: argparse.Namespace) -> None:
    """Mean return of the last tenth of the updates, over seeds."""
    for name, (ppo, steps) in LEARNT.items():
        if given.only not in name:
            continue
        source, updates = gym_source(name), (given.steps or steps) // (ppo.num_envs * ppo.rollout_steps)
        for staleness in (0, 2):
            finals = []
            for seed in range(given.seeds):
                with training(source, ppo, seed, workers=2, staleness=staleness) as engine:
                    ended = []
                    for update in range(updates):
                        ended.append(engine.collect().total)
                        engine.update(update / updates)
                finals.append(np.concatenate(ended[-max(1, updates // 10) :]).mean())
            error = np.std(finals, ddof=1) / len(finals) ** 0.5 if len(finals) > 1 else float("nan")
            every = ", ".join(f"{x:.1f}" for x in finals)
            print(f"  {name:<22}staleness {staleness}  {np.mean(finals):9.2f} ± {error:.2f}   ({every})", flush=True)


def main() -> None:
    """Prints the chosen rows."""
    titles = dict(line.split(":", 1) for line in (__doc__ or "").splitlines() if ": " in line)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", choices=list(titles))
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="environments of the row learning whose names contain this")
    parser.add_argument("--steps", type=int, default=0, help="steps of a run of the row learning, instead of its own")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--games", type=int, default=20, help="games of the row cyborg")
    parser.add_argument("--cyborg", default="", metavar="CLONE", help="a clone of the CybORG repository")
    parser.add_argument("--cyborg-python", default="", metavar="PYTHON", help="an interpreter that has CybORG")
    given = parser.parse_args()
    if not given.cyborg and (needy := [row for row in given.rows if row in IN_CYBORG]):
        parser.error(f"row {needy[0]} plays in CybORG; name a clone of its repository with --cyborg CLONE")
    given.clone = [x for x in (given.cyborg, given.cyborg_python) if x]
    use_threads(given.threads)
    short_slices()  # as a training does
    rows: dict[str, Callable[[], None]] = {
        "compute": lambda: steps_that_compute(given),
        "wait": lambda: steps_that_wait(given),
        "cartpole": lambda: cartpole(given),
        "cyborg": lambda: steps_that_compute(
            given, "cyborg", PPOConfig(num_envs=given.games, rollout_steps=max(10, 1000 // given.games))
        ),
        "mettagrid": lambda: mettagrid(given),
        "states": lambda: true_states(given),
        "learning": lambda: learning(given),
    }
    for row in given.rows:
        print(f"{row}: {titles[row].strip()}")
        rows[row]()


if __name__ == "__main__":
    main()
