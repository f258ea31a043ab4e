"""`cavalcade profile`: where the time of a training goes."""

import cProfile
import pstats
import time
from dataclasses import dataclass
from pathlib import Path

from cavalcade.cli.parse import check_folder, import_from_here
from cavalcade.cli.targets import parse_target
from cavalcade.core.errors import at_least
from cavalcade.ppo.engine import Engine
from cavalcade.runs.policies import load_policy
from cavalcade.runs.waiting import PREPARING, waiting
from cavalcade.targets import target_named
from cavalcade.targets.base import Setup
from cavalcade.tuning import bounds, machine

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


def run(args: list[str]) -> int:
    """Measures and prints."""
    import_from_here()
    _, options = parse_target(Options, args, "profile")
    updates, config = at_least("updates", options.updates, 1), options.config
    check_folder("cprofile", options.cprofile)
    setup = Setup(threads=at_least("threads", options.threads, 0), load=load_policy)
    with waiting(PREPARING):
        prepared = target_named(config.target).prepare(config, setup)
        engine, threads = prepared.engine, prepared.threads
        engine.env.reset()
        engine.refresh()
        for _ in range(3):
            engine.collect()
            metrics = engine.update(0.0)
    engine.timer.seconds.clear()
    begun = engine.counters.clock
    profile = cProfile.Profile()
    start = time.perf_counter()
    with waiting(f"training for {updates} updates"):
        profile.enable()
        for i in range(updates):
            engine.collect()
            metrics = engine.update(i / updates)
        profile.disable()
    seconds = time.perf_counter() - start
    share = float(metrics["distinct_observations"].mean()) if "distinct_observations" in metrics else 1.0
    on_gpu = _on_gpu(engine, share)
    engine.env.close()
    steps = (engine.counters.clock - begun) * engine.num_envs
    print(machine.line(), *prepared.notes, sep="\n")
    rate = f"{steps:,} steps in {seconds:.2f} s, {steps / seconds:,.0f} steps/s"
    print(f"{engine.name} engine, {threads} threads: {rate}\n")
    for name, share in engine.timer.shares().items():
        print(f"  {name:<10} {share:6.1%}  {1e9 * share * seconds / steps:8.0f} ns per step")
    _print_functions(profile, seconds)
    print("\n" + (on_gpu or bounds.verdict(engine, steps / seconds, share, threads)))
    if options.cprofile:
        profile.dump_stats(options.cprofile)
        print(f"raw profile in {options.cprofile}")
    return 0


def _on_gpu(engine: Engine, share: float) -> str:
    """The roofline of a GPU; empty for other engines."""
    if engine.name != "cuda":
        return ""
    from cavalcade.ppo.engines.cuda.engine import CudaEngine
    from cavalcade.tuning import roofline

    assert isinstance(engine, CudaEngine)
    phases, steps = roofline.measure_phases(engine), engine.games.num_envs * engine.config.rollout_steps
    ceiling = roofline.measure_ceiling(engine.precision)
    return roofline.verdict(phases, steps, engine.operations(share), engine.bytes_per_step(share), ceiling)


def _print_functions(profile: cProfile.Profile, seconds: float) -> None:
    """The functions with the most time of their own."""
    print("\n  most time in")
    rows = sorted(pstats.Stats(profile).stats.items(), key=lambda item: -item[1][2])[:_TOP]  # pyright: ignore
    for (file, line, name), (_, calls, own, _, _) in rows:
        where = name if file == "~" else f"{Path(file).name}:{line} {name}"
        print(f"  {own / seconds:6.1%}  {calls:>8,} calls  {where}")
