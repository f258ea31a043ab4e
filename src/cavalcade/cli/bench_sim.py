"""`cavalcade bench sim`: how fast CAGE-2 steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cavalcade.bench import machine, sim
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.cli.waiting import COMPILING, waiting
from cavalcade.errors import at_least


@dataclass(frozen=True)
class Options:
    """Measures the CAGE-2 simulator on this machine and prints a table."""

    seconds: float = 1.0
    """Time for each cell of the table."""
    threads: int = 0
    """Most threads to try; 0 for all."""
    dtype: Literal["uint8", "float32"] = "uint8"
    """Type of the observation values that are written."""
    start: bool = True
    """Also measure the time from process start to the first step, with nothing compiled (about 20 s) and cached."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints the table row by row and writes the figures."""
    options = parse(Options, args, "bench sim")
    check_seconds(options.seconds)
    at_least("threads", options.threads, 0)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe(), "state_bytes": sim.state_bytes(), "batches": []}
    print(f"CAGE-2 simulator: uniform random Blue, observation ({options.dtype}) and mask written, autoreset on")
    print(machine.line())
    with waiting(COMPILING):
        sim.warm_up(options.dtype)
    counts = sim.thread_counts(options.threads)
    print(f"\n{'Red':<9}{'environments':>13}" + "".join(f"{n:>13} thr" for n in counts) + "   steps/s, best of 5")
    for row in sim.batch_rows(counts, options.seconds, options.dtype):
        figures["batches"].append(row)
        rates = "".join(f"{rate:>17,.0f}" for rate in row["steps_per_second"].values())
        print(f"{row['red']:<9}{row['num_envs']:>13,}{rates}", flush=True)
    figures["gymnasium_steps_per_second"] = sim.single_environment(options.seconds)
    print(f"\none environment through gymnasium.make: {figures['gymnasium_steps_per_second']:,.0f} steps/s")
    print(f"state per environment: {figures['state_bytes']} bytes")
    if options.start:
        with waiting("measuring the start of a new process, cold and cached"):
            figures["start_seconds"] = sim.start_seconds()
        cold, cached = figures["start_seconds"].values()
        print(f"process start to first step: cold {cold:.1f} s, cached {cached:.1f} s")
    write_figures(options.json, figures)
    return 0
