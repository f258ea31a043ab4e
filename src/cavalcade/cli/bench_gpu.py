"""`cavalcade bench gpu`: simulator, training and search on a GPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cavalcade.bench import machine
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, parse
from cavalcade.errors import at_least

Part = Literal["simulator", "training", "episodes", "learning", "workflows"]


@dataclass(frozen=True)
class Options:
    """Measures CAGE-2 on one GPU: games alone, PPO end to end, learning against time, all orders at once."""

    parts: tuple[Part, ...] = ("simulator", "training", "episodes", "learning", "workflows")
    """What to measure."""
    envs: tuple[int, ...] = (4096, 65_536, 262_144, 1_048_576)
    """Numbers of environments of the simulator."""
    reds: tuple[Literal["bline", "meander"], ...] = ("bline", "meander")
    """Who attacks."""
    rounds: int = 5
    """Trainings of each order."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints a table per part."""
    options = parse(Options, args, "bench gpu")
    check_folder("json", options.json)
    at_least("rounds", options.rounds, 1)
    for count in options.envs:
        at_least("envs", count, 1)
    from cavalcade.cuda import check_device

    check_device()
    import torch

    name = torch.cuda.get_device_name()
    print(f"{name}; {machine.line()}", flush=True)
    figures: dict[str, Any] = {"machine": machine.describe(), "device": name}
    for part in options.parts:
        figures[part] = _PARTS[part](options)
    write_figures(options.json, figures)
    return 0


def _simulator(options: Options) -> dict[int, dict[str, float]]:
    from cavalcade.bench.gpu import simulator

    print("\nsimulator: steps/s, random Blue, packed observations, CUDA graph, median")
    print(f"{'environments':>14}" + "".join(f"{red:>18}" for red in options.reds))
    found = {}
    for count in options.envs:
        found[count] = {red: simulator(count, red) for red in options.reds}
        print(f"{count:>14,}" + "".join(f"{rate:>18,.0f}" for rate in found[count].values()), flush=True)
    return found


_SHAPES = (
    (65_536, 32, (64, 64), 1), (65_536, 32, (256, 256), 1), (16_384, 16, (64, 64), 1), (4096, 4, (64, 64), 1),
    (200, 4, (64, 64), 1), (50, 1, (64, 64), 120),
)  # fmt: skip


def _training(options: Options) -> list[dict[str, Any]]:
    from cavalcade.bench.gpu import learner, training_rate

    print("\nPPO end to end, K = 4, 100 steps per update, Meander; median of 10 updates")
    print(f"{'policies × environments':>24}{'networks':>10}{'products':>10}{'M steps/s':>11}", end="")
    print(f"{'rollout ms':>12}{'update ms':>11}{'GPU busy':>10}")
    found = []
    for envs, minibatches, hidden, policies in _SHAPES:
        for precision in ("fp32", "tf32", "bf16"):
            got = training_rate(learner(envs, minibatches, hidden, precision, policies))
            shape = f"{policies} × {envs:,}"
            print(f"{shape:>24}{'-'.join(map(str, hidden)):>10}{precision:>10}{got.steps / 1e6:>11.1f}", end="")
            print(f"{got.rollout:>12.2f}{got.update:>11.2f}{got.busy:>10.0%}", flush=True)
            found.append(
                {"policies": policies, "envs": envs, "hidden": hidden, "precision": precision, **got._asdict()}
            )
    return found


def _episodes(options: Options) -> dict[str, float]:
    import time

    from cavalcade.bench.gpu import learner

    one = learner(50_000, 20, (64, 64), "bf16", 1)
    for _ in range(3):
        one.collect()
        one.update(0.0)
    start = time.perf_counter()
    for _ in range(2):
        one.collect()
        one.update(0.0)
    seconds = time.perf_counter() - start
    print(f"\n100,000 episodes, 10,000,000 steps, 50,000 environments, bf16: {seconds:.3f} s", flush=True)
    return {"seconds": seconds}


def _learning(options: Options) -> dict[str, Any]:
    from cavalcade.bench.gpu import curves

    print("\nlearning: 5 seeds side by side, greedy on 1,000 held-out games of 100 steps each")
    found: dict[str, Any] = {}
    for red in options.reds:
        for name, got in curves(red):
            scores = " ".join(f"{x:.2f}" for x in got.scores)
            print(f"  {red:<8} {name:<42}{got.seconds:>7.1f} s  mean {np.mean(got.scores):.2f}  ({scores})", flush=True)
            found[f"{red}, {name}"] = got._asdict()
    return found


def _workflows(options: Options) -> dict[str, Any]:
    from cavalcade.bench.gpu import workflows

    print(f"\nall 120 orders × {options.rounds} trainings × 2,500 episodes as one population")
    found, total = {}, 0.0
    for red in options.reds:
        seconds, prepared, trainings = workflows(red, options.rounds)
        total += seconds
        steps = trainings * 250_000 / (seconds - prepared)
        print(f"  {red:<8} {trainings} trainings in {seconds:.1f} s, {prepared:.1f} of them preparing", end="")
        print(f"; {steps / 1e6:.1f} M steps/s with scores", flush=True)
        found[red] = {"seconds": seconds, "prepared": prepared, "trainings": trainings}
    print(f"  together {total:.1f} s")
    return found


_PARTS = {
    "simulator": _simulator, "training": _training, "episodes": _episodes, "learning": _learning,
    "workflows": _workflows,
}  # fmt: skip
