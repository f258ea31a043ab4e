"""`cavalcade profile`: where the time of a training goes."""

import cProfile
import pstats
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavalcade.bench import bounds, machine
from cavalcade.cli.parse import check_folder, import_from_here
from cavalcade.cli.targets import parse_target
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.errors import ConfigError, at_least
from cavalcade.ppo.bptt.learner import BpttLearner
from cavalcade.ppo.learner import Learner
from cavalcade.ppo.make import make_learner
from cavalcade.ppo.threads import choose_threads, choose_torch_threads, use_threads, use_torch_threads
from cavalcade.runs.environments import environment_for
from cavalcade.runs.mettagrid import learner_for

_TOP = 12


@dataclass(frozen=True)
class Options:
    """Runs a short training and prints where its time goes: phases, functions, the bottleneck and the bound."""

    updates: int = 100
    """Updates to measure, after some to warm up."""
    threads: int = 0
    """CPU threads; 0 measures how many are worth using."""
    recipe: str | None = None
    """Settings to start from: the name of a shipped recipe, or a YAML file."""
    hardware: str | None = None
    """Sizes that suit a machine: tuned, as `cavalcade tune` found them for this target."""
    cprofile: Path | None = None
    """Write the raw profile to this file, for snakeviz or pstats."""


def _learner(config: Any, threads: int) -> tuple[Learner | BpttLearner, int, list[str]]:
    """The learner of a training, how many threads it uses, and what there is to say about it."""
    if isinstance(config, MettagridTrainConfig):
        threads = threads or choose_torch_threads()
        use_torch_threads(threads)
        return learner_for(environment_for(config, threads), config), threads, []
    if getattr(config, "device", "cpu") == "cuda":
        raise ConfigError(
            "device is cuda; only trainings on the CPU are profiled, `cavalcade bench gpu` measures a GPU"
        )
    threads = threads or choose_threads()
    use_threads(threads)
    learner, notes = make_learner(environment_for(config, threads), config.ppo, config.seeds)
    return learner, threads, notes


def run(args: list[str]) -> int:
    """Measures and prints."""
    import_from_here()
    _, options = parse_target(Options, args, "profile")
    updates = at_least("updates", options.updates, 1)
    check_folder("cprofile", options.cprofile)
    with waiting(COMPILING):
        learner, threads, notes = _learner(options.config, at_least("threads", options.threads, 0))
        env = learner.env
        env.reset()
        for _ in range(3):
            learner.collect()
            metrics = learner.update(0.0)
    learner.timer.seconds.clear()
    begun = learner.state.clock
    profile = cProfile.Profile()
    start = time.perf_counter()
    with waiting(f"training for {updates} updates"):
        profile.enable()
        for i in range(updates):
            learner.collect()
            metrics = learner.update(i / updates)
        profile.disable()
    seconds = time.perf_counter() - start
    env.close()
    steps = (learner.state.clock - begun) * env.spec.num_envs
    print(machine.line(), *notes, sep="\n")
    rate = f"{steps:,} steps in {seconds:.2f} s, {steps / seconds:,.0f} steps/s"
    print(f"{learner.name} learner, {threads} threads: {rate}\n")
    for name, share in learner.timer.shares().items():
        print(f"  {name:<10} {share:6.1%}  {1e9 * share * seconds / steps:8.0f} ns per step")
    print("\n  most time in")
    rows = sorted(pstats.Stats(profile).stats.items(), key=lambda item: -item[1][2])[:_TOP]  # pyright: ignore
    for (file, line, name), (_, calls, own, _, _) in rows:
        where = name if file == "~" else f"{Path(file).name}:{line} {name}"
        print(f"  {own / seconds:6.1%}  {calls:>8,} calls  {where}")
    share = float(metrics["distinct_rows"].mean()) if "distinct_rows" in metrics else 1.0
    print("\n" + bounds.verdict(learner, steps / seconds, share, threads))
    if options.cprofile:
        profile.dump_stats(options.cprofile)
        print(f"raw profile in {options.cprofile}")
    return 0
