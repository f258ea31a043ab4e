"""`cavalcade bench mettagrid`: how fast MettaGrid is stepped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavalcade.bench import machine
from cavalcade.bench.mettagrid import TASK, stepping
from cavalcade.cli.bench import write_figures
from cavalcade.cli.parse import check_folder, check_seconds, parse
from cavalcade.cli.waiting import waiting
from cavalcade.errors import at_least


@dataclass(frozen=True)
class Options:
    """Measures agent-steps per second of the forage arena, 24 agents, beside PufferLib where it is installed."""

    arenas: tuple[int, ...] = (8, 64)
    """Numbers of arenas."""
    workers: int = 2
    """Worker processes."""
    seconds: float = 5.0
    """Time for each row."""
    json: Path | None = None
    """Write the raw figures to this file."""


def run(args: list[str]) -> int:
    """Prints a table."""
    options = parse(Options, args, "bench mettagrid")
    check_seconds(options.seconds)
    check_folder("json", options.json)
    at_least("workers", options.workers, 1)
    for arenas in options.arenas:
        at_least("arenas", arenas, 2 * options.workers)
    print(machine.line(), flush=True)
    with waiting("stepping arenas"):
        found = {arenas: stepping(arenas, options.workers, options.seconds) for arenas in options.arenas}
    figures: dict[str, Any] = {"machine": machine.describe(), "stepping": found}
    title = f"MettaGrid {TASK}, 24 agents, agent-steps/s, {options.workers} workers"
    print(f"\n{title:<52}" + "".join(f"{f'{arenas} arenas':>14}" for arenas in options.arenas))
    for name in next(iter(found.values())):
        print(f"  {name:<50}" + "".join(f"{rates[name]:>14,.0f}" for rates in found.values()))
    write_figures(options.json, figures)
    return 0
