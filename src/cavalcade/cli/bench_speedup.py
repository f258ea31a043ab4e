"""`cavalcade bench speedup`: each optimisation that the CAGE-2 workflow-search documents proposed, measured."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavalcade.bench import machine, speedup
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.errors import at_least


@dataclass(frozen=True)
class Options:
    """Measures the optimisations one by one: claimed factor, measured factor."""

    seconds: float = 6.0
    """Time for each row."""
    workers: int = speedup.WORKERS
    """Processes with an environment each, in the first rows."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints row by row."""
    options = parse(Options, args, "bench speedup")
    check_seconds(options.seconds)
    at_least("workers", options.workers, 1)
    check_folder("json", options.json)
    figures: dict[str, Any] = {"machine": machine.describe(), "steps": []}
    print(machine.line())
    print("training steps/s (rollout and K = 4 update) against B_line\n")
    print(f"{'optimisation':<56}{'steps/s':>10}{'factor':>9}   claimed")
    for step in speedup.measure(options.seconds, options.workers):
        figures["steps"].append(step._asdict())
        print(f"{step.name:<56}{step.rate:>10,.0f}{step.rate / step.against:>8.2f}×   {step.claim}", flush=True)
    first, last = figures["steps"][0]["rate"], figures["steps"][-1]["rate"]
    print(f"\nfrom the first row to the last: {last / first:,.0f}×")
    write_figures(options.json, figures)
    return 0
