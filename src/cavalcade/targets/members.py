"""Which policy of a population is used: the rule of every verb, in one place."""

from collections.abc import Callable
from typing import Any, NamedTuple

from cavalcade.core.errors import ConfigError


class Member(NamedTuple):
    """A policy of a population."""

    index: int
    text: str  # which one, as text for the user; empty if there is only one


def choose_member(policy: Any, member: int | None, best: Callable[[Any], int]) -> Member:
    """The policy asked for by its index, else the best one on validation episodes."""
    count = getattr(policy, "policies", 1)
    if member is not None and not 0 <= member < count:
        raise ConfigError(f"member is {member}; {policy.path} has {count}, numbered from 0")
    if count == 1:
        return Member(0, "")
    if member is not None:
        return Member(member, f"policy {member} of {count}")
    index = best(policy)
    return Member(index, f"policy {index} of {count}, the best in validation")
