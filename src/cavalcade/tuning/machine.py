"""The machine that a measurement was made on."""

import os
import platform
from pathlib import Path
from typing import Any

import numba
import numpy as np

from cavalcade.core.version import __version__


def describe() -> dict[str, Any]:
    """Processor, cores, load and versions, as plain data."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "cavalcade": __version__,
    }


def line() -> str:
    """The same in one line."""
    return "{processor}, {cores} cores, load {load}; Python {python}, Numba {numba}".format(**describe())


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [row.split(":")[1].strip() for row in info.read_text().splitlines() if row.startswith("model name")]
        if names:
            return names[0]
    return platform.processor() or platform.machine()
