"""The exceptions users see. Each message is one line: the value given, the values allowed, what to do."""

from collections.abc import Iterable
from typing import Any


class CavalcadeError(Exception):
    """Anything a user can mend."""


class ConfigError(CavalcadeError, ValueError):
    """A setting is unknown, out of range or at odds with another."""


class ActionError(CavalcadeError, ValueError):
    """Actions of the wrong shape, type or range."""


class StateError(CavalcadeError, ValueError):
    """A saved state does not fit, or an environment is used before its first reset."""


class RunError(CavalcadeError):
    """A run directory cannot be used as asked: in use, not a run, damaged, or no room to write."""


class TrainingError(CavalcadeError):
    """Learning went wrong: a loss or a gradient is not a number."""


class WorkerError(CavalcadeError):
    """A hosted environment fails, or the process that hosts it keeps failing."""


class TraceError(CavalcadeError, ValueError):
    """A file is not a recording of episodes that can be replayed."""


def seed_from(name: str, value: Any, most: int = 2**31) -> int:
    """A seed: a whole number from 0 up to a bound."""
    if at_least(name, value, 0) >= most:
        raise ConfigError(f"{name} is {value}; it must be below {most}")
    return int(value)


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> int:
    """The position of a value among the allowed ones."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(map(str, allowed))}")
    return allowed.index(value)


def at_least(name: str, value: Any, least: int) -> int:
    """A whole number not below a bound."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return int(value)
