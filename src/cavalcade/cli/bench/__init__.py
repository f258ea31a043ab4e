"""`cavalcade bench`: speed and results of Cavalcade, measured on this machine.

Each subcommand is a module here with its options, what it measures and what it prints; it is imported when called.
"""

import importlib
import json
from pathlib import Path
from typing import Any

from cavalcade.cli import fail
from cavalcade.cli.help import help_asked

BENCHES = {
    "envs": "steps per second of hosted environments, by backend, beside others",
    "sim": "steps per second of the CAGE-2 simulator",
    "images": "steps per second of training on images, beside Stable-Baselines3",
    "mettagrid": "agent-steps per second of MettaGrid",
    "gpu": "steps per second of the CAGE-2 simulator on a GPU",
    "gp": "how well searchers find the best order",
    "orders": "what trainings of all orders say, and how far answers of a search can be trusted",
    "speedup": "each optimisation of the workflow-search documents, measured",
    "distributed": "what Ray and torchrun cost beside one process",
    "train": "speed and results of training, beside other trainers",
}


def run(args: list[str]) -> int:
    """Runs a subcommand by name."""
    what, *rest = args or ["--help"]
    if help_asked([what]):
        print("usage: cavalcade bench WHAT [options]\n\nMeasures the speed of Cavalcade on this machine.\n")
        print("\n".join(f"  {name:<11} {line}" for name, line in BENCHES.items()))
        return 0
    if what not in BENCHES:
        fail(f"cavalcade bench: unknown measurement {what!r}; it must be one of {', '.join(BENCHES)}")
    return importlib.import_module(f"{__name__}.{what}").run(rest)


def write_statistics(path: Path | None, figures: dict[str, Any]) -> None:
    """Writes raw measurements as JSON, if a file was named."""
    if path:
        path.write_text(json.dumps(figures, indent=1))
