"""Numba decorators: `rule` for a game, `routine` and `formula` for numerics, `kernel` for what Python calls.

Rules are written once; they are compiled for the CPU here and for CUDA by the kernels that call them. Compiled kernels
are cached on disk, in a folder named by a hash of the sources that they may contain (`kernel_sources`).

The body of a parallel loop must be a single call: Numba's parallel transformation of longer bodies was seen to lose
assignments to fields of named tuples.
"""

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numba.core.config
import numpy as np

from cavalcade.core.kernel_sources import sources_key

_OPTIONS: Any = {"error_model": "numpy", "nogil": True}
# Rules of a game never allocate; reference counting at each array access would make a step 25 times slower.
_UNCOUNTED: Any = {"_nrt": False}
# Only kernels call rules and routines, never Python: leaving the entry points out halves the time to compile.
_INNER: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Sums may be reordered and products fused, so that loops vectorise; NaN and infinity keep their meaning.
_NUMERICS: Any = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}}
_FOLDERS_KEPT = 8
config: Any = numba.core.config
_njit: Any = numba.njit  # its type hints know only a part of its options


def rule(function: Callable) -> Any:
    """Compiles a scalar function of a game. Always inlined: a call would pass every array of the state by value."""
    return _njit(forceinline=True, **_UNCOUNTED, **_INNER, **_OPTIONS)(function)


def callable_rule(function: Callable) -> Any:
    """As `rule`, for functions that Python calls too."""
    return _njit(forceinline=True, **_UNCOUNTED, **_OPTIONS)(function)


def routine(function: Callable) -> Any:
    """Compiles numerics that kernels call; may slice arrays."""
    return _njit(**_INNER, **_NUMERICS, **_OPTIONS)(function)


def formula(function: Callable) -> Any:
    """Compiles the innermost numerics: inlined, on elements of arrays only."""
    return _njit(forceinline=True, **_UNCOUNTED, **_INNER, **_NUMERICS, **_OPTIONS)(function)


def kernel(
    function: Callable | None = None, *, parallel: bool = False, numerics: bool = False, cached: bool = True
) -> Any:
    """Compiles a loop over environments, rows or policies; cached on disk unless user-defined functions are in it."""
    if function is None:
        return functools.partial(kernel, parallel=parallel, numerics=numerics, cached=cached)
    if config.DISABLE_JIT:
        return np.errstate(over="ignore")(function)  # random keys wrap around on purpose
    if not cached:
        return _njit(parallel=parallel, **_UNCOUNTED, **_OPTIONS)(function)
    with cache_folder(function.__module__):
        return _njit(cache=True, parallel=parallel, **(_NUMERICS if numerics else _UNCOUNTED), **_OPTIONS)(function)


thread_id: Any = numba.get_thread_id  # pyright: ignore[reportPrivateImportUsage]


def all_threads() -> int:
    """The maximum number of threads of a parallel kernel."""
    return config.NUMBA_NUM_THREADS


def cache_base() -> Path:
    """The root of the kernel cache."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "cavalcade", "kernels")


@functools.cache
def cache_path(module: str) -> str:
    """The cache folder of a module, for exactly its sources; all but the newest folders beside it are deleted."""
    folder = cache_base() / module / sources_key(module)
    with contextlib.suppress(OSError):  # not writable: Numba falls back to a folder it can write, or to none
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in others[:-_FOLDERS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return str(folder)


@contextlib.contextmanager
def cache_folder(module: str, settings: Any = config) -> Iterator[None]:
    """Sets Numba's cache folder, which it reads when a function is decorated; restores the user's setting on exit."""
    before = settings.CACHE_DIR
    settings.CACHE_DIR = cache_path(module)
    try:
        yield
    finally:
        settings.CACHE_DIR = before
