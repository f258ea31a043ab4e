"""`cavalcade payoff BLUE… --reds RED,…`: every Blue against every Red of CAGE-2."""

import json
from dataclasses import dataclass
from pathlib import Path

from cavalcade.api import payoff
from cavalcade.cli.options import Positional
from cavalcade.cli.parse import check_folder, import_from_here, parse
from cavalcade.runs.directory import write_whole
from cavalcade.runs.waiting import waiting
from cavalcade.targets.cage2 import payoff as table


@dataclass(frozen=True, kw_only=True)
class Options(table.Options):
    __doc__ = table.Options.__doc__

    blues: Positional[tuple[str, ...]]
    """Runs, checkpoints, searches, or names of baselines."""
    json: Path | None = None
    """Also write the table to this file, as JSON."""


def run(args: list[str]) -> int:
    import_from_here()
    args = ["--no-sampled" if arg == "--greedy" else arg for arg in args]
    options = parse(Options, args, "payoff")
    check_folder("json", options.json)
    with waiting("playing") as news:
        chosen = {name: getattr(options, name) for name in table.Options.__dataclass_fields__}
        found = payoff(
            options.blues, progress=lambda done, cells: news(f"playing: {done} of {cells} cells done"), **chosen
        )
    print(found)
    if options.json:
        write_whole(options.json, json.dumps(found.plain, indent=1))
    return 0
