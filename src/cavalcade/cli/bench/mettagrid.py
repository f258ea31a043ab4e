"""Trainings on MettaGrid, measured: real runs by the command line, with logs and checkpoints, stopped by the clock."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavalcade.config_mettagrid import MettagridTask
from cavalcade.errors import ConfigError
from cavalcade.runs.directory import METRICS
from cavalcade.runs.mettagrid import heldout_rewards, load_token_policy, random_actor
from cavalcade.vector.hosted import cores

_WARM = 3.0  # seconds of a run that do not count
_GUIDE = ("--recipe", "mettagrid-guide")


class Measured(NamedTuple):
    """What came of a run."""

    rate: float  # agent-steps per second
    reward: float  # per agent-step, at the end of the time
    steps: int
    curve: list[tuple[float, float, float]]  # seconds, reward, steps so far


def measure(args: list[str], seconds: float, folder: Path) -> Measured:
    """Trains with given options for a time."""
    command = [sys.executable, "-m", "cavalcade", "train", "mettagrid", "--run", str(folder), "--quiet"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*command, "--steps", str(10**10), *args], stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(folder / METRICS, process)
            deadline = time.monotonic() + _WARM + seconds
            while time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        finally:
            process.kill()
        said.seek(0)
        if process.returncode not in (0, 128 + signal.SIGTERM):
            raise ConfigError(f"a run with {' '.join(args)} failed: {said.read().strip().splitlines()[-1:]}")
    return read(folder, seconds)


def _wait_for(path: Path, process: subprocess.Popen) -> None:
    while process.poll() is None and not (path.exists() and path.stat().st_size):
        time.sleep(0.1)


def read(folder: Path, seconds: float = float("inf")) -> Measured:
    """The figures of a run: rates without its first seconds, rewards of the last fifth of the time."""
    rows = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    start = next((i for i, row in enumerate(rows) if row["seconds"] >= _WARM), 0)
    first, last = rows[start], rows[-1]
    if start == len(rows) - 1:
        first = {"seconds": 0.0, "steps": 0}
    end = min(last["seconds"], _WARM + seconds)
    tail = [row["reward"][0] for row in rows if row["seconds"] >= 0.8 * end]
    rate = (last["steps"] - first["steps"]) / (last["seconds"] - first["seconds"])
    curve = [(row["seconds"], row["reward"][0], row["steps"]) for row in rows]
    return Measured(rate, float(np.mean(tail)), last["steps"], curve)


def peer(seconds: float, **task: Any) -> dict[str, float] | None:
    """PuffeRL in a process of its own; none where it is not installed or fails."""
    if importlib.util.find_spec("pufferlib") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given = {"seconds": seconds, "folder": folder, "threads": 1, "arenas": 16, "minibatch": 8192, **task}
        command = [sys.executable, "-W", "ignore", "-m", "cavalcade.bench.puffer", json.dumps(given)]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


OURS = {
    "feed-forward 128": ["--core", "none", "--num-envs", "64", "--batch-size", "98304", "--minibatch-size", "6144"],
    "LSTM-128": ["--core", "lstm", "--num-envs", "64", "--batch-size", "98304", "--minibatch-size", "6144"],
}
PEERS = {
    "PuffeRL, flat feed-forward 128": {"net": "flat", "rnn": False},
    "PuffeRL, embedding bag feed-forward 128": {"net": "bag", "rnn": False},
    "PuffeRL, flat LSTM-128": {"net": "flat", "rnn": True},
}


def training(seconds: float, rounds: int) -> Iterator[tuple[str, float]]:
    """Agent-steps per second of trainings, ours and PuffeRL's, in turns; each name comes once per round."""
    for _ in range(rounds):
        for name, options in PEERS.items():
            if found := peer(seconds, **options):
                yield name, found["rate"]
        for name, args in OURS.items():
            with tempfile.TemporaryDirectory() as folder:
                yield name, measure(args, seconds, Path(folder, "run")).rate


def ablation_rows() -> dict[str, list[str]]:
    """Settings of the performance guide: its "original", one knob changed at a time, and all together.

    Its arena has 4 agents. Workers are as many as there are cores, instead of 4 and 16.
    """
    base = [*_GUIDE, "--hardware", "original", "--workers", str(cores())]
    big = ["--batch-size", "262144", "--minibatch-size", "32768"]
    off = [word for name in ("evaluate", "replay", "statistics", "monitor") for word in (f"--{name}-every", "0")]
    return {
        "original": base,
        "  with 1 worker": [*base, "--workers", "1"],
        "  with async factor 8": [*base, "--async-factor", "8"],
        "  with one group, no overlap": [*base, "--backend", "shared"],
        "  with BPTT 32": [*base, "--bptt-horizon", "32"],
        "  with minibatches of 4,096": [*base, "--minibatch-size", "4096"],
        "  with batches of 262,144 / 32,768": [*base, *big],
        "  with that and 512 arenas": [*base, *big, "--num-envs", "512"],
        "  with monitoring and scores off": [*base, *off],
        "  with torch.compile": [*base, "--compile", "default"],
        "  with bf16": [*base, "--precision", "bf16"],
        "  with prioritised segments": [*base, "--priority-alpha", "0.8"],
        "  with contrastive loss": [*base, "--contrastive-coef", "0.1"],
        "  without memory": [*base, "--core", "none"],
        "ultra_fast": [*_GUIDE, "--hardware", "ultra_fast", "--workers", str(cores()), "--precision", "fp32"],
        "laptop sizes, 64 arenas": [
            *_GUIDE, "--hardware", "laptop", "--num-envs", "64", "--batch-size", "16384", "--minibatch-size", "2048",
        ],
    }  # fmt: skip


def learning(seconds: float, seeds: int, args: list[str]) -> Iterator[tuple[int, Measured, np.ndarray]]:
    """Trainings of a time each, and rewards per agent-step on held-out maps, by seed."""
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = measure([*args, "--seed", str(seed)], seconds - _WARM, Path(folder, "run"))
            player = load_token_policy(Path(folder, "run")).player(seed=seed)
            yield seed, found, heldout_rewards(player, MettagridTask(), 16, seed=seed, backend="shared")


def chance(arenas: int = 16) -> np.ndarray:
    """Rewards per agent-step of acting at random on held-out maps."""
    return heldout_rewards(random_actor(0), MettagridTask(), arenas, seed=0, backend="shared")


def minutes(curve: list[tuple[float, float, float]]) -> list[float]:
    """Agent-steps per second in each whole minute of a run."""
    at = np.array([second for second, _, _ in curve])
    steps = np.array([count for _, _, count in curve], float)
    edges = np.arange(0, int(at[-1] // 60) + 1) * 60.0
    return list(np.diff(np.interp(edges, at, steps)) / 60)
