"""MettaGrid on a GPU with recorded gradient steps against plain ones: speed, where the time goes, and equal weights.

python benchmarks/recorded_updates.py [--precision tf32] [--seconds 4] [OPTION of train mettagrid ...]
"""

import argparse
import time

import torch

from cavalcade.cli.targets import parse_target
from cavalcade.cli.train import Options
from cavalcade.ppo.engines.recurrent.resident import ResidentEngine
from cavalcade.targets.base import Setup
from cavalcade.targets.mettagrid import TARGET

GUIDE = ["--recipe", "mettagrid-guide", "--hardware", "ultra_fast", "--device", "cuda"]


def timed(engine: ResidentEngine, seconds: float) -> tuple[float, float, int]:
    """Seconds of rollouts and of updates, and updates made."""
    spent, updates, start = [0.0, 0.0], 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for i, work in enumerate((engine.collect, lambda: engine.update(0.0))):
            torch.cuda.synchronize()
            before = time.perf_counter()
            work()
            torch.cuda.synchronize()
            spent[i] += time.perf_counter() - before
        updates += 1
    return spent[0], spent[1], updates


def main() -> None:
    """Trains both, with the same seed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--equal", type=int, default=10, help="updates after which weights are compared")
    given, rest = parser.parse_known_args()
    config = parse_target(Options, ["mettagrid", *GUIDE, "--precision", given.precision, *rest], "train")[1].config
    weights = {}
    for recorded in (False, True):
        engine = TARGET.prepare(config, Setup()).engine
        assert isinstance(engine, ResidentEngine)
        engine.env.reset(seed=0)
        engine.refresh()
        if not recorded:
            engine.optimizers.recordable = False
        for _ in range(given.equal):
            engine.collect()
            engine.update(0.0)
        weights[recorded] = [p.detach().clone() for p in engine.policy.parameters()]
        rollout, update, count = timed(engine, given.seconds)
        rate = count * config.ppo.batch_size / (rollout + update)
        each = f"rollout {1e3 * rollout / count:.1f} ms, update {1e3 * update / count:.1f} ms"
        print(f"{'recorded' if recorded else 'plain':<10}{rate:>12,.0f} agent-steps/s; {each}", flush=True)
    equal = all(torch.equal(x, y) for x, y in zip(*weights.values(), strict=True))
    most = max(float((x - y).abs().max()) for x, y in zip(*weights.values(), strict=True))
    print(f"weights after {given.equal} updates: {'equal' if equal else f'differ by {most:.1e}'}")


if __name__ == "__main__":
    main()
