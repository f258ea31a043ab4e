"""How hot loops are compiled: `rule` for a game, `routine` and `formula` for numerics, `kernel` for what Python calls.

Rules are written once and compiled for the CPU here and for CUDA by the kernels that call them. Compiled kernels are
kept on disk. Numba checks only the file of the kernel itself, not the modules it calls, so the folder is named by a
hash of every source that kernels are made of: an edit anywhere gives a fresh folder.

The body of a parallel loop must be a single call: Numba's parallel transformation of longer bodies was seen to lose
assignments to fields of named tuples.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numba.core.config
import numpy as np

_OPTIONS: Any = {"error_model": "numpy", "nogil": True}
# Rules of a game never allocate; counting references at each access of an array would cost 25 times the step.
_UNCOUNTED: Any = {"_nrt": False}
# Python cannot call rules and routines, only kernels can: leaving the entry points out halves the time to compile.
_INNER: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Sums may be reordered and products fused, so that loops vectorise; NaN and infinity keep their meaning.
_NUMERICS: Any = {"fastmath": {"contract", "reassoc", "nsz", "arcp"}}
_FOLDERS_KEPT = 8
_KERNEL_FOLDERS = ("envs", "policy", "ppo", "workflow")
config: Any = numba.core.config
_njit: Any = numba.njit  # its type hints know only a part of its options


def rule(function: Callable) -> Any:
    """Compiles a scalar function of a game. Always inlined: a call would pass every array of the state by value."""
    return _njit(forceinline=True, **_UNCOUNTED, **_INNER, **_OPTIONS)(function)


def routine(function: Callable) -> Any:
    """Compiles a piece of numerics that kernels call; may take matrices out of arrays."""
    return _njit(**_INNER, **_NUMERICS, **_OPTIONS)(function)


def formula(function: Callable) -> Any:
    """Compiles the innermost numerics: inlined, on elements of arrays only."""
    return _njit(forceinline=True, **_UNCOUNTED, **_INNER, **_NUMERICS, **_OPTIONS)(function)


def kernel(function: Callable | None = None, *, parallel: bool = False, numerics: bool = False) -> Any:
    """Compiles a loop over environments, rows or policies, cached on disk."""
    if function is None:
        return functools.partial(kernel, parallel=parallel, numerics=numerics)
    if config.DISABLE_JIT:
        return np.errstate(over="ignore")(function)  # random keys wrap around on purpose
    with cache_folder():
        return _njit(cache=True, parallel=parallel, **(_NUMERICS if numerics else _UNCOUNTED), **_OPTIONS)(function)


thread_id: Any = numba.get_thread_id  # pyright: ignore[reportPrivateImportUsage]


def all_threads() -> int:
    """The most threads a parallel kernel can use."""
    return config.NUMBA_NUM_THREADS


def source_hash() -> str:
    """A hash of all sources that compiled kernels may contain, and of what compiles them."""
    digest = hashlib.sha256(f"{sys.version} numba {numba.__version__}".encode())
    root = Path(__file__).parent
    folders = [path for folder in _KERNEL_FOLDERS for path in (root / folder).rglob("*.py")]
    for path in sorted([*folders, *root.glob("*.py")]):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_path() -> str:
    """The folder for compiled kernels of exactly these sources; older ones beside it are cleared away."""
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parent = Path(base, "cavalcade", "kernels")
    folder = parent / source_hash()
    with contextlib.suppress(OSError):  # not writable: Numba falls back to a folder it can write, or to none
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in others[:-_FOLDERS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return str(folder)


@contextlib.contextmanager
def cache_folder(settings: Any = config) -> Iterator[None]:
    """Numba reads the folder when a function is decorated; the user's own setting is put back afterwards."""
    before = settings.CACHE_DIR
    settings.CACHE_DIR = cache_path()
    try:
        yield
    finally:
        settings.CACHE_DIR = before
