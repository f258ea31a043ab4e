"""`cavalcade evaluate`: scores of a trained policy, or of a baseline, on held-out games."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import tyro

from cavalcade.api import load_policy
from cavalcade.cli.parse import check_folder, import_from_here, parse
from cavalcade.runs.directory import is_search, target_of
from cavalcade.runs.waiting import waiting
from cavalcade.targets import target_named
from cavalcade.targets.base import Target


def run(args: list[str]) -> int:
    """Prints the scores; returns 1 if there were too few episodes for a score."""
    import_from_here()
    named = args[0] if args and not args[0].startswith("-") else ""
    target = target_named((target_of(Path(named)) if named else "") or "cage2")
    args = ["--no-sampled" if arg == "--greedy" else arg for arg in args]
    options: Any = parse(_options(target), args, "evaluate")
    check_folder("json", options.json)
    path = Path(options.policy)
    with waiting("evaluating (the first time compiles for up to half a minute)") as news:
        policy = _open(path, options) if path.exists() else options.policy
        scores = target.evaluate(policy, options, news)
    print(scores)
    if options.json and scores.scores:
        options.json.write_text(json.dumps(scores.plain, indent=1))
    return 0 if scores.scores else 1


def _open(path: Path, options: Any) -> Any:
    """Loads the policies of a run, or of a search the one that follows an order."""
    if is_search(path):
        return load_policy(path, order=options.order, member=options.member)
    return load_policy(path, order=getattr(options, "order", None))


def _options(target: Target[Any]) -> type:
    """The evaluation options of the target, and those of the verb."""
    kind, said = target.EvaluateOptions, "Run, checkpoint, search, or name of a CAGE-2 baseline."
    policy = Annotated[tyro.conf.Positional[str], tyro.conf.arg(help=said)]
    written = Annotated[Path | None, tyro.conf.arg(help="Also write the scores to this file, as JSON.")]
    fields: list[Any] = [
        ("policy", policy, dataclasses.field(kw_only=True)),
        ("json", written, dataclasses.field(default=None, kw_only=True)),
    ]
    made = dataclasses.make_dataclass("Options", fields, bases=(kind,), frozen=True)
    made.__doc__ = kind.__doc__
    return made
