"""Cavalcade trains reinforcement-learning agents in seconds where people now wait for hours.

import cavalcade

run = cavalcade.train("cage2", red="meander", episodes=100_000)
policy = cavalcade.load_policy(run.path)
"""

import sys
from importlib import import_module
from inspect import Signature, signature
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cavalcade.core.version import __version__
from cavalcade.envs import register

if TYPE_CHECKING:
    from cavalcade.api import Run, Scores, SearchRun, evaluate, load_policy, make_env, payoff, search, train

__all__ = [
    "Run", "Scores", "SearchRun", "__version__", "evaluate", "load_policy", "make_env", "payoff", "search", "train",
]  # fmt: skip


class _SearchPackage(ModuleType):
    """`cavalcade.search`: the package with what a search is made of, and the function that runs one."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return import_module("cavalcade.api").search(*args, **options)

    @property
    def __signature__(self) -> Signature:
        return signature(import_module("cavalcade.api").search)

    def __reduce__(self) -> Any:
        return import_module, (self.__name__,)


class _Package(ModuleType):
    """Imports the API when it is used: torch and Numba take seconds."""

    def __getattr__(self, name: str) -> Any:
        if name == "search":
            return import_module("cavalcade.search")
        if name in __all__:
            return getattr(import_module("cavalcade.api"), name)
        raise AttributeError(f"module 'cavalcade' has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*__all__, *(name for name in super().__dir__() if name.startswith("_"))]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "search":
            value.__class__ = _SearchPackage
        super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        """Pickled by reference, as every module, also in functions that Ray sends to its workers."""
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package

register()
