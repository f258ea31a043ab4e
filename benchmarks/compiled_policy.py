"""MettaGrid on the CPU with the compiled token policy and loss against torch's modules, in turns within one process.

    python benchmarks/compiled_policy.py [--core none|lstm|gru] [--threads 2] [--rounds 5]

Prints agent-steps per second by the clock, and microseconds of CPU per agent-step, which tell more on a busy machine.
"""

import argparse
import time
from dataclasses import replace

from cavalcade.core.threads import use_torch_threads
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.targets.base import Setup
from cavalcade.targets.mettagrid import TARGET, MettagridConfig


def main() -> None:
    """Trains by both, the best round of each counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    config = MettagridConfig()
    sizes = replace(config.ppo, num_envs=64, batch_size=98_304, minibatch_size=6_144)
    config = replace(config, policy=replace(config.policy, core=given.core), ppo=sizes)
    engine = TARGET.prepare(config, Setup(threads=given.threads)).engine
    assert isinstance(engine, RecurrentEngine)
    engine.env.reset(seed=0)
    use_torch_threads(given.threads)
    best: dict[tuple[bool, str], float] = {}
    for turn in range(given.rounds + 1):  # the first compiles
        for compiled in (True, False):
            engine.policy.compiled = engine._fused_loss = compiled  # pyright: ignore
            for phase, work in (("rollout", engine.collect), ("update", lambda: engine.update(0.0))):
                wall, used = time.perf_counter(), time.process_time()
                work()
                for kind, seconds in (("wall", time.perf_counter() - wall), ("CPU", time.process_time() - used)):
                    key = compiled, f"{phase}, {kind}"
                    best[key] = min(best.get(key, seconds), seconds) if turn > 1 else seconds
    print(f"\n{'µs per agent-step':<20}{'torch':>10}{'compiled':>10}{'ratio':>8}")
    for name in ("rollout, wall", "update, wall", "rollout, CPU", "update, CPU"):
        old, new = (1e6 * best[compiled, name] / sizes.batch_size for compiled in (False, True))
        print(f"{name:<20}{old:>10.2f}{new:>10.2f}{old / new:>8.2f}")
    for compiled, name in ((False, "torch"), (True, "compiled")):
        seconds = best[compiled, "rollout, wall"] + best[compiled, "update, wall"]
        print(f"{name}: {sizes.batch_size / seconds:,.0f} agent-steps/s")


if __name__ == "__main__":
    main()
