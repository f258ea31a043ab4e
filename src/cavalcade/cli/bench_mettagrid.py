"""`cavalcade bench mettagrid`: how fast MettaGrid is stepped, trained and learnt, beside peers and by knob."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cavalcade.bench import machine
from cavalcade.bench.mettagrid import TASK, stepping
from cavalcade.bench.mettagrid_runs import ablation_rows, chance, learning, measure, minutes, training
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.cli.waiting import waiting
from cavalcade.errors import ConfigError, at_least
from cavalcade.statistics import half_interval

Part = Literal["stepping", "training", "ablation", "learning", "hour"]


@dataclass(frozen=True)
class Options:
    """Measures MettaGrid on this machine; PufferLib and PuffeRL beside it where they are installed."""

    parts: tuple[Part, ...] = ("stepping", "training", "ablation")
    """stepping: random actions. training: whole trainings. ablation: the performance guide's original against
    ultra_fast, knob by knob. learning: reward on held-out maps after --minutes. hour: whether speed decays in them."""
    arenas: tuple[int, ...] = (8, 64)
    """Numbers of arenas for stepping."""
    workers: int = 2
    """Worker processes for stepping."""
    seconds: float = 20.0
    """Time for each row."""
    rounds: int = 2
    """Rounds of training, the best of which counts."""
    minutes: float = 10.0
    """Time of each training for learning, or of the one for hour."""
    seeds: int = 3
    """Trainings for learning."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints a table per part."""
    options = parse(Options, args, "bench mettagrid")
    check_seconds(options.seconds)
    if not 1 <= options.minutes <= 120:
        raise ConfigError(f"minutes is {options.minutes}; it must be from 1 to 120")
    check_folder("json", options.json)
    for name in ("workers", "rounds", "seeds"):
        at_least(name, getattr(options, name), 1)
    for arenas in options.arenas:
        at_least("arenas", arenas, 2 * options.workers)
    print(machine.line(), flush=True)
    figures: dict[str, Any] = {"machine": machine.describe()}
    for part in options.parts:
        figures[part] = _PARTS[part](options)
    write_figures(options.json, figures)
    return 0


def _stepping(options: Options) -> dict[int, dict[str, float]]:
    with waiting("stepping arenas"):
        found = {arenas: stepping(arenas, options.workers, options.seconds) for arenas in options.arenas}
    title = f"MettaGrid {TASK}, 24 agents, agent-steps/s, {options.workers} workers"
    print(f"\n{title:<52}" + "".join(f"{f'{arenas} arenas':>14}" for arenas in options.arenas))
    for name in next(iter(found.values())):
        print(f"  {name:<50}" + "".join(f"{rates[name]:>14,.0f}" for rates in found.values()), flush=True)
    return found


def _training(options: Options) -> dict[str, float]:
    best: dict[str, float] = {}
    with waiting("training"):
        for name, rate in training(options.seconds, options.rounds):
            best[name] = max(best.get(name, 0.0), rate)
    peers = {name: rate for name, rate in best.items() if name.startswith("PuffeRL")}
    print(f"\n{'Trainings, forage, 24 agents, agent-steps/s':<52}{'':>14}{'to the best peer of its kind':>32}")
    for name, rate in best.items():
        kind = [other for peer, other in peers.items() if ("LSTM" in peer) == ("LSTM" in name)]
        ratio = f"{rate / max(kind):.2f}×" if kind and name not in peers else ""
        print(f"  {name:<50}{rate:>14,.0f}{ratio:>32}", flush=True)
    return best


def _ablation(options: Options) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    print(f"\n{'The guide by knob, 4 agents per arena, LSTM-128':<40}{'agent-steps/s':>15}{'':>9}", end="")
    print(f"{f'reward after {options.seconds:g} s':>22}{'updates':>10}", flush=True)
    for name, given in ablation_rows().items():
        with waiting(name.strip()), tempfile.TemporaryDirectory() as folder:
            got = measure(given, options.seconds, Path(folder, "run"))
        found[name.strip()] = {"rate": got.rate, "reward": got.reward, "updates": len(got.curve)}
        ratio = got.rate / found["original"]["rate"]
        print(f"  {name:<38}{got.rate:>15,.0f}{ratio:>8.2f}×{got.reward:>22.5f}{len(got.curve):>10}", flush=True)
    return found


def _learning(options: Options) -> dict[str, Any]:
    with waiting("acting at random"):
        random = chance()
    print(f"\nLearning, forage, 24 agents, {options.minutes:g} minutes; reward per agent-step on held-out maps")
    print(f"  at random   {random.mean():.5f} ± {half_interval(random):.5f}", flush=True)
    found: dict[str, Any] = {"random": random.tolist()}
    for seed, got, rewards in learning(60 * options.minutes, options.seeds, ["--hardware", "laptop"]):
        times = rewards.mean() / random.mean()
        print(
            f"  seed {seed:<6} {rewards.mean():.5f} ± {half_interval(rewards):.5f}   {times:.1f} times chance; "
            f"{got.steps:,} steps, {got.rate:,.0f} a second",
            flush=True,
        )
        found[f"seed {seed}"] = {"rewards": rewards.tolist(), "rate": got.rate, "curve": got.curve}
    return found


def _hour(options: Options) -> dict[str, Any]:
    with waiting(f"training for {options.minutes:g} minutes"), tempfile.TemporaryDirectory() as folder:
        got = measure(["--hardware", "laptop"], 60 * options.minutes, Path(folder, "run"))
    rates = minutes(got.curve)
    tail = rates[-10:]
    print(f"\nTraining for {len(rates)} minutes, agent-steps/s: first minute {rates[0]:,.0f}, last {rates[-1]:,.0f}")
    print(
        f"  last to first {rates[-1] / rates[0]:.3f}; last {len(tail)} to first {sum(tail) / len(tail) / rates[0]:.3f}"
    )
    return {"minutes": rates}


_PARTS = {
    "stepping": _stepping, "training": _training, "ablation": _ablation, "learning": _learning, "hour": _hour,
}  # fmt: skip
