"""Runs of `cavalcade train mettagrid`, stopped by the clock, and what their logs say."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavalcade.core.errors import ConfigError
from cavalcade.runs.files import METRICS

WARM = 3.0  # seconds of a run that do not count …
_COMPILING = 40.0  # … and with torch.compile
MONITORED = {"rollout_share": "rollout", "training_share": "training", "gpu_percent": "GPU"}  # columns by metric
MEMORY = {"memory_mb": "memory, MB", "gpu_memory_mb": "GPU, MB"}


class Measured(NamedTuple):
    """Figures of a run."""

    rate: float  # agent-steps per second
    reward: float  # per agent-step, at the end of the time
    steps: int
    curve: list[tuple[float, float, float]]  # seconds, reward, steps so far
    monitored: dict[str, float]  # means of what the run monitored
    memory: dict[str, list[tuple[float, float]]]  # seconds, MB


def measure(args: list[str], seconds: float, folder: Path) -> Measured:
    """Trains with given options for a time."""
    warm = _COMPILING if "--compile" in args else WARM
    command = [sys.executable, "-m", "cavalcade", "train", "mettagrid", "--run", str(folder), "--quiet"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*command, "--steps", str(10**10), *args], stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(folder / METRICS, process)
            deadline = time.monotonic() + warm + seconds
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        finally:
            process.kill()
        said.seek(0)
        if process.returncode not in (0, 128 + signal.SIGTERM):
            raise ConfigError(f"a run with {' '.join(args)} failed: {said.read().strip().splitlines()[-1:]}")
    return read(folder, seconds, warm)


def _wait_for(path: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and not (path.exists() and path.stat().st_size):
        time.sleep(0.1)


def read(folder: Path, seconds: float = float("inf"), warm: float = WARM) -> Measured:
    """The figures of a run: rates without its first seconds, rewards of the last fifth of the time."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    start = next((i for i, row in enumerate(rows) if row["seconds"] >= warm), 0)
    first, last = rows[start], rows[-1]
    if start == len(rows) - 1:
        first = {"seconds": 0.0, "steps": 0}
    end = min(last["seconds"], warm + seconds)
    tail = [row["reward"][0] for row in rows if row["seconds"] >= 0.8 * end]
    rate = (last["steps"] - first["steps"]) / (last["seconds"] - first["seconds"])
    curve = [(row["seconds"], row["reward"][0], row["steps"]) for row in rows]
    watched = {name: [row[name][0] for row in rows[start:] if name in row] for name in MONITORED}
    monitored = {name: float(np.mean(values)) for name, values in watched.items() if values}
    memory = {name: [(row["seconds"], row[name][0]) for row in rows if name in row] for name in MEMORY}
    return Measured(rate, float(np.mean(tail)), last["steps"], curve, monitored, memory)


def windows(points: list[tuple[float, float]], count: int) -> tuple[list[float], list[float]]:
    """Ends of equal windows of the time, and what a growing count grew by in each of them, per second."""
    at, total = (np.array(column, float) for column in zip(*points, strict=True))
    edges = np.linspace(at[0], at[-1], count + 1)
    return edges[1:].tolist(), (np.diff(np.interp(edges, at, total)) / np.diff(edges)).tolist()
