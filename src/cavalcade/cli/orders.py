"""Options about orders, shared by several verbs."""

from cavalcade.cli.parse import option

_REWARDS = ("alignment", "alignment-lambda", "alpha", "beta")


def select_reward(args: list[str]) -> tuple[list[str], list[str]]:
    """Adds --enforce reward if alignment rewards are given without --enforce; returns arguments and notes."""
    given = [name for name in _REWARDS if option(args, name) is not None]
    if not given or option(args, "enforce") is not None:
        return args, []
    note = f"--{given[0]} without --enforce: orders are rewarded, not enforced (--enforce reward)"
    return [*args, "--enforce", "reward"], [note]
