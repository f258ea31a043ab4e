"""The exceptions users see. A message is one line: the value given, the values allowed, what to do."""

from collections.abc import Iterable
from typing import Any

_MOST = 2**63 - 1
_NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")  # words of torch for GPUs and for the host


class CavalcadeError(Exception):
    """Base class of all errors that a user can fix."""


class ConfigError(CavalcadeError, ValueError):
    """A setting is unknown, out of range or incompatible with another."""


class ActionError(CavalcadeError, ValueError):
    """Actions of the wrong shape, type or range."""


class StateError(CavalcadeError, ValueError):
    """A saved state does not fit, or an environment is stepped before its first reset."""


class RunError(CavalcadeError):
    """A run directory cannot be used: locked, not a run directory, damaged, or the disk is full."""


class TrainingError(CavalcadeError):
    """Training diverged: a loss or a gradient is NaN."""


class WorkerError(CavalcadeError):
    """A hosted environment failed, or its worker keeps failing."""


class RestartError(WorkerError):
    """Workers were restarted as often as allowed."""

    def __init__(self, message: str, allowed: int):
        super().__init__(message)
        self.allowed = allowed


class TraceError(CavalcadeError, ValueError):
    """A file is not a recording of episodes that can be verified."""


def seed_from(name: str, value: Any, most: int = 2**31) -> int:
    """Checks a seed: a whole number from 0 to most − 1."""
    if at_least(name, value, 0) >= most:
        raise ConfigError(f"{name} is {value}; it must be below {most}")
    return int(value)


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> int:
    """Checks that a value is allowed; returns its position among the allowed values."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; it must be one of {', '.join(map(str, allowed))}")
    return allowed.index(value)


def at_least(name: str, value: Any, least: int) -> int:
    """Checks a whole number ≥ least, of 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    if int(value) > _MOST:
        raise ConfigError(f"{name} is {value!r}; it must be a whole number of at most {_MOST}")
    return int(value)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy or torch means that memory ran out, on the host or on a GPU."""
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    return said or isinstance(error, MemoryError)
