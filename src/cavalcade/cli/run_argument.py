"""Which run a command is about, before its options are known: they depend on the run's target."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from cavalcade.runs.directory import is_search
from cavalcade.runs.policies import is_saved, trained_on


def run_among(args: Sequence[str], *path_options: str) -> str:
    """The first argument; if that is an option, the first saved run that is not the value of one of some options."""
    if not args or not args[0].startswith("-"):
        return args[0] if args else ""
    return next((arg for before, arg in pairwise(args) if before not in path_options and is_saved(arg)), "")


def target_of_run(path: Path) -> str:
    """The target that plays and scores the policies of a run; those of a search play CAGE-2."""
    return "cage2" if is_search(path) else trained_on(path) or "cage2"
