"""Which run a command is about, before its options are known: they depend on the run's target."""

from collections.abc import Sequence
from itertools import pairwise

from cavalcade.runs.policies import is_saved


def run_among(args: Sequence[str], *path_options: str) -> str:
    """The first argument; if that is an option, the first saved run that is not the value of one of some options."""
    if not args or not args[0].startswith("-"):
        return args[0] if args else ""
    return next((arg for before, arg in pairwise(args) if before not in path_options and is_saved(arg)), "")
