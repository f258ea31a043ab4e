"""Numba's CUDA target, imported in one place; compiled GPU kernels are cached on disk like those for the CPU."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

if not hasattr(np, "row_stack"):  # numba-cuda 0.30 still uses it, NumPy 2.5 has removed it
    np.row_stack = np.vstack  # pyright: ignore[reportAttributeAccessIssue]

from numba import cuda as numba_cuda

from cavalcade.core.errors import ConfigError
from cavalcade.core.jit import cache_folder, config

cuda: Any = numba_cuda  # its type hints do not know kernels


def _settings() -> Any:
    """The settings module that Numba's CUDA target reads: numba-cuda has its own."""
    try:
        return importlib.import_module("numba.cuda.core.config")
    except ImportError:
        return config


_settings().CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small batches are the user's choice


def simulated() -> bool:
    """Whether Numba's CUDA simulator runs kernels: it has no warps."""
    return bool(config.ENABLE_CUDASIM)


def check_device() -> None:
    """Raises `ConfigError` if there is no usable GPU."""
    if not cuda.is_available():
        raise ConfigError(
            "device is cuda; there is no CUDA device here, or Numba cannot use it: pip install 'cavalcade[cuda]', or "
            "take --device cpu"
        )


def gpu_kernel(function: Callable, *, fastmath: bool = False, registers: int | None = None) -> Any:
    """Compiles a kernel at its first launch, or loads it from the cache.

    fastmath: sums may be reordered; registers: per thread, at most.
    """
    limit = {} if registers is None or simulated() else {"max_registers": registers}
    with cache_folder(function.__module__, _settings()):
        return cuda.jit(cache=True, fastmath=fastmath, **limit)(function)
