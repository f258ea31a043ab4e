"""Environments: batches of games behind one contract. They know nothing of learning."""

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Any

CAGE2_ID = "cavalcade/Cage2-v0"
CATCH_ID = "cavalcade/Catch-v0"


def register() -> None:
    """Registers the environments with Gymnasium: now, or when it is imported.

    Gymnasium takes longer to import than the answer to `cavalcade --help`.
    """
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


def _register() -> None:
    import gymnasium

    if CAGE2_ID not in gymnasium.registry:
        gymnasium.register(
            CAGE2_ID,
            entry_point="cavalcade.envs.cage2.gym:Cage2Env",
            vector_entry_point="cavalcade.envs.cage2.gym:Cage2VectorEnv",
        )
    if CATCH_ID not in gymnasium.registry:
        gymnasium.register(CATCH_ID, entry_point="cavalcade.envs.catch:Catch")


class _Watch(importlib.abc.MetaPathFinder):
    """Registers the environments when Gymnasium is imported, by any module."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                load(module)
                _register()

            spec.loader.exec_module = exec_module
        return spec
