"""`cavalcade evaluate`: scores of a trained policy, or of a baseline, on held-out games."""

import json
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

from cavalcade.api import load_policy
from cavalcade.cli.help import HelpRequested, Page, help_asked
from cavalcade.cli.options import Positional, options_of, union
from cavalcade.cli.parse import check_folder, import_from_here, parse
from cavalcade.cli.run_argument import run_among, target_of_run
from cavalcade.runs.directory import is_search, write_whole
from cavalcade.runs.policies import is_saved
from cavalcade.runs.waiting import waiting
from cavalcade.targets import target_named, targets
from cavalcade.targets.base import Target


def run(args: list[str]) -> int:
    """Prints the scores; returns 1 if there were too few episodes for a score."""
    import_from_here()
    named = run_among(args, "--json", "--cyborg", "--cyborg-python")
    if not named and help_asked(args):
        known = {target.name: options_of(_options(target)) for target in targets()}
        raise HelpRequested(Page("evaluate", _Options.__doc__ or "", tuple(union(known))))
    name = target_of_run(Path(named)) if named else "cage2"
    target = target_named(name)
    args = ["--no-sampled" if arg == "--greedy" else arg for arg in args]
    options: Any = parse(_options(target), args, "evaluate", target=name)
    check_folder("json", options.json)
    path = Path(options.policy)
    with waiting("evaluating") as news:
        policy = _open(path, options) if is_saved(path) else options.policy
        scores = target.evaluate(policy, options, news)
    print(scores)
    if options.json and scores.scores:
        write_whole(options.json, json.dumps(scores.plain, indent=1))
    return 0 if scores.scores else 1


def _open(path: Path, options: Any) -> Any:
    """Loads the policies of a run, or of a search the one that follows an order."""
    if is_search(path):
        return load_policy(path, order=options.order, member=options.member)
    return load_policy(path, order=getattr(options, "order", None))


@dataclass(frozen=True, kw_only=True)
class _Options:
    """Scores a policy on held-out games, or a CAGE-2 baseline by name."""

    policy: Positional[str]
    """Run, checkpoint, search, policy file, model:NAME, or name of a CAGE-2 baseline."""
    json: Path | None = None
    """Also write the scores to this file, as JSON."""


def _options(target: Target[Any]) -> type:
    """The evaluation options of the target, and those of the verb."""
    made = make_dataclass("Options", [], bases=(_Options, target.EvaluateOptions), frozen=True)
    made.__doc__ = target.EvaluateOptions.__doc__
    return made
