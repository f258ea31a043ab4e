"""Registry of targets: the only modules that know both environments and engines."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cavalcade.core.errors import ConfigError

if TYPE_CHECKING:  # help reads the names and must start at once
    from cavalcade.targets.base import Target

SHIPPED = ("cage2", "cyborg", "gym:", "mettagrid", "env:")  # each a module here with a constant TARGET
GROUP = "cavalcade.targets"  # entry points through which packages add targets


@cache
def targets() -> "tuple[Target[Any], ...]":
    """All targets: those shipped, and those that installed packages add."""
    from importlib.metadata import entry_points

    shipped = [import_module(f"{__name__}.{name.rstrip(':')}").TARGET for name in SHIPPED]
    return (*shipped, *(point.load() for point in entry_points(group=GROUP)))


def is_target(name: str) -> bool:
    """Whether a target accepts a name."""
    return any(target.accepts(name) for target in targets())


def target_named(name: str) -> "Target[Any]":
    """The target that accepts a name; raises `ConfigError` if there is none."""
    for target in targets():
        if target.accepts(name):
            return target
    raise ConfigError(f"target is {name!r}; it must be one of {target_names()}")


def target_names() -> str:
    """All targets, as they are written on the command line."""
    return ", ".join(target.name + "NAME" * target.prefix for target in targets())
