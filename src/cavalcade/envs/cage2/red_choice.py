"""User-defined Reds: found by name, checked, compiled, and asked for their actions before each step.

A compiled Red becomes a loop of its own, on the CPU or on a GPU; the kernels of the game stay as they are.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.core.jit import config, kernel, rule
from cavalcade.core.rng import step_key
from cavalcade.envs.cage2 import cpu
from cavalcade.envs.cage2.own_red import MEMORY, Knowledge, allowed, knowledge
from cavalcade.envs.cage2.scenario import OWN, REDS
from cavalcade.envs.cage2.state import State

Red = str | Callable[[Any, Any, Any], Any]
# Lines of the compiler's messages that do not tell what is wrong.
_NO_CAUSE = ("Failed in", "During:", "File ", "Compilation is", "-", "No implementation of function", "There are")
_NAMES = "bline, meander, sleep, mixed"  # as people know them
_SIGNATURE = "a Red is a function red(s, e, key) that returns an action and its target"


@dataclass(frozen=True)
class OwnRed:
    """A user-defined Red."""

    label: str
    function: Callable[[Any, Any, Any], Any]

    @property
    def compiled(self) -> bool:
        """Whether it is compiled; where nothing is, it plays as if it were."""
        return hasattr(self.function, "py_func") or bool(config.DISABLE_JIT)

    def check_gpu(self) -> None:
        """Raises `ConfigError` if it cannot play on a GPU."""
        if not self.compiled:
            raise ConfigError(
                f"red {self.label} is plain Python, which no GPU can play; decorate it with @rule, or take --device cpu"
            )


def check_red(name: str) -> None:
    """Raises `ConfigError` unless a name is a Red of the challenge or has the form module:function."""
    module, colon, function = name.partition(":")
    if name not in REDS and not (colon and function.isidentifier() and all(map(str.isidentifier, module.split(".")))):
        raise ConfigError(f"red is {name!r}; it must be one of {_NAMES}, or module:function")


def own_red(red: Red) -> OwnRed:
    """A user-defined Red, by name or as a function or callable object."""
    if isinstance(red, str):
        check_red(red)
        return OwnRed(red, _checked(_imported(red), red))
    if not callable(red):
        raise ConfigError(f"red is {red!r}; it must be one of {_NAMES}, module:function, or a function red(s, e, key)")
    label = getattr(red, "__name__", "") or type(red).__name__
    return OwnRed(label, _checked(red, label))


def red_path(red: Callable[[Any, Any, Any], Any]) -> str:
    """The name module:function of a Red, by which a configuration keeps it."""
    label = own_red(red).label
    module, name = getattr(red, "__module__", ""), getattr(red, "__qualname__", "")
    if module == "__main__" or getattr(sys.modules.get(module), name, None) is not red:
        raise ConfigError(
            f"red is {label} of {module}; a run keeps its Red as module:function, so it must be a function of a file, "
            f"e.g. my_reds.py: import it from there, or name it: red='my_reds:mix'"
        )
    return f"{module}:{name}"


def red_codes(red: Red | Sequence[Red], num_envs: int) -> tuple[NDArray[np.int8], tuple[OwnRed, ...]]:
    """The number of each environment's Red, and the user-defined ones among them, numbered from OWN upwards."""
    each = isinstance(red, Sequence) and not isinstance(red, str)
    given: tuple[Any, ...] = tuple(red) if each else (red,)  # pyright: ignore[reportArgumentType]
    if each and len(given) != num_envs:
        raise ConfigError(
            f"red names {len(given)} agents for {num_envs} environments; give one, or one per environment"
        )
    own: dict[Any, OwnRed] = {}
    codes = []
    for x in given:
        if isinstance(x, str) and x in REDS:
            codes.append(REDS.index(x))
            continue
        name = x if isinstance(x, str) else id(x)
        if name not in own:
            own[name] = own_red(x)
        codes.append(OWN + list(own).index(name))
    return np.broadcast_to(np.array(codes, np.int8), num_envs), tuple(own.values())


class RedChoices:
    """The user-defined Reds of a batch, asked before each step for the actions of the games that they play."""

    def __init__(self, reds: Sequence[OwnRed]):
        self.reds = tuple(reds)
        self._loops = [loops_of(red.function) if red.compiled else None for red in reds]

    def compile(self, s: State, memory: NDArray[np.int64]) -> None:
        """Compiles the Reds that can be; raises `ConfigError` for one that cannot."""
        for red, loops in zip(self.reds, self._loops, strict=True):
            if loops:
                with compiling(red):
                    loops[0](0, 0, knowledge(s, memory), s.key, s.episode, s.red, OWN)

    def choose(self, s: State, memory: NDArray[np.int64], threads: int) -> None:
        """Writes the next actions of these Reds into the state."""
        k, n = knowledge(s, memory), s.step.size
        threads = min(threads, n // cpu.ENVIRONMENTS_PER_THREAD)
        for i, (red, loops) in enumerate(zip(self.reds, self._loops, strict=True)):
            if loops is None:
                _choose_in_python(red, k, s, OWN + i)
            elif threads > 1:
                loops[1](threads, k, s.key, s.episode, s.red, OWN + i)
            else:
                loops[0](0, n, k, s.key, s.episode, s.red, OWN + i)


def check_gpu(red: str) -> None:
    """Raises `ConfigError` if a Red cannot play on a GPU."""
    if red not in REDS:
        own_red(red).check_gpu()


def slow_red(red: str) -> list[str]:
    """A note about a Red that is not compiled."""
    slow = red not in REDS and not own_red(red).compiled
    return [f"red {red} is plain Python: slow; decorate it with @rule to compile it"] if slow else []


def choice_of(function: Any) -> Any:
    """The rule that asks a compiled Red in one game."""

    @rule
    def choice(k, keys, episodes, e):
        if k.step[e] == 0:
            for i in range(MEMORY):
                k.memory[e, i] = 0
        action, target = function(k, e, step_key(keys[e], episodes[e], k.step[e]))
        k.red_action[e], k.red_target[e] = allowed(k, e, np.int64(action), np.int64(target))

    return choice


@cache
def loops_of(function: Any) -> tuple[Any, Any]:
    """The loops over games of a compiled Red: over a range, and over all on several threads."""
    choice = choice_of(function)

    @kernel(cached=False)
    def choose_range(start, stop, k, keys, episodes, reds, number):
        for e in range(start, stop):
            if reds[e] == number:
                choice(k, keys, episodes, e)

    @kernel(cached=False, parallel=True)
    def choose_threads(threads, k, keys, episodes, reds, number):
        n = reds.size
        for i in numba.prange(threads):
            choose_range(i * n // threads, (i + 1) * n // threads, k, keys, episodes, reds, number)

    return choose_range, choose_threads


@contextmanager
def compiling(red: OwnRed) -> Iterator[None]:
    """Turns errors of the compiler into a `ConfigError` of one line."""
    try:
        yield
    except NumbaError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        cause = next((line for line in lines if line and not line.startswith(_NO_CAUSE)), "unknown")
        cause = re.sub(r"Knowledge\(array.*\)", "Knowledge", cause)
        raise ConfigError(
            f"red {red.label} cannot be compiled: {cause}; {_SIGNATURE}, and sees only the fields of Knowledge"
        ) from None


def _imported(name: str) -> Any:
    module, _, function = name.partition(":")
    try:
        found = import_module(module)
    except Exception as error:
        raise ConfigError(
            f"red is {name!r}; the module {module} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not hasattr(found, function):
        raise ConfigError(f"red is {name!r}; the module {module} has no {function}")
    return getattr(found, function)


def _checked(function: Any, label: str) -> Any:
    """The function, if it takes three arguments."""
    if inspect.isclass(function):
        raise ConfigError(f"red {label} is a class; make an object of it: red={function.__name__}()")
    if not callable(function):
        raise ConfigError(f"red {label} is of type {type(function).__name__}; {_SIGNATURE}")
    try:
        inspect.signature(getattr(function, "py_func", function)).bind(None, None, None)
    except TypeError:
        signature = inspect.signature(getattr(function, "py_func", function))
        raise ConfigError(f"red {label} takes {signature}; {_SIGNATURE}") from None
    return function


def _choose_in_python(red: OwnRed, k: Knowledge, s: State, number: int) -> None:
    rows = np.flatnonzero(s.red == number)
    keys = np.empty(s.step.size, np.uint64)
    cpu.step_keys(s, keys)
    k.memory[rows[k.step[rows] == 0]] = 0
    actions = np.zeros((2, len(rows)), np.int64)
    for i, e in enumerate(rows.tolist()):
        with np.errstate(over="ignore"):  # as in compiled code: random keys wrap around on purpose
            found = red.function(k, e, keys[e])
        try:
            actions[0, i], actions[1, i] = found
        except (TypeError, ValueError, OverflowError):
            raise ConfigError(f"red {red.label} returned {found!r}; {_SIGNATURE}, two whole numbers") from None
    cpu.give_red_actions(k, rows, *actions)
