"""Options about orders that several verbs share."""

from pathlib import Path

from cavalcade.cli.parse import option
from cavalcade.errors import ConfigError
from cavalcade.runs.directory import is_search
from cavalcade.runs.policy import SavedPolicy, load_policy
from cavalcade.search.policies import BEST, load_search_policy

_REWARDS = ("alignment", "alignment-lambda", "alpha", "beta")


def select_reward(args: list[str]) -> tuple[list[str], list[str]]:
    """Arguments in which alignment rewards, given without --enforce, select themselves; and a note that says so."""
    given = [name for name in _REWARDS if option(args, name) is not None]
    if not given or option(args, "enforce") is not None:
        return args, []
    note = f"--{given[0]} without --enforce: orders are rewarded, not enforced (--enforce reward)"
    return [*args, "--enforce", "reward"], [note]


def open_policy(path: Path, order: str | None, member: int | None) -> SavedPolicy:
    """The policies of a training, or that of a search which follows an order."""
    if is_search(path):
        return load_search_policy(path, order or BEST, member)
    if order is not None:
        raise ConfigError(f"order is {order!r}; {path} is not a search, its policies act as they were trained")
    return load_policy(path)
