"""The original CybORG, in the user's own checkout, behind the face of a batch: so that scores can be checked there.

Each worker is a process with an interpreter that has CybORG's old dependencies. What CybORG does not show but Blue
knows (its own decoys, its last action, the time, scans it has seen) is kept by a batch of ours against a sleeping Red
that gets the same actions: decoys depend on Blue alone.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cavalcade.envs.cage2 import cpu
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import NUM_BITS
from cavalcade.errors import ConfigError, RunError

_WORKER = Path(__file__).with_name("cyborg_worker.py")


def check_clone(checkout: Path) -> None:
    """Refuses a folder that is no clone of CAGE Challenge 2."""
    if not (checkout / "CybORG" / "CybORG").is_dir():
        raise ConfigError(f"{checkout} is no clone of cage-challenge/cage-challenge-2: it has no CybORG/CybORG")


class CyborgBatch(Cage2):
    """Games in CybORG, one per worker: observations are CybORG's, rewards too."""

    def __init__(self, checkout: Path, workers: int, python: Path | None = None, **options: Any):
        check_clone(checkout)
        super().__init__(workers, red="sleep", autoreset=False, threads=1, **options)
        self._processes = [start(_WORKER, checkout, python) for _ in range(workers)]
        self.returns = np.zeros(workers)

    def begin(self, red: str, seed: int | None = None) -> None:
        """New games against a Red agent; with a seed, worker i starts its random stream at seed + i."""
        super().reset()
        self.returns[:] = 0
        for i, process in enumerate(self._processes):
            send(process, {"reset": red, "seed": None if seed is None else seed + i})
        self._show_tables([receive(process)["table"] for process in self._processes])

    def step(self, actions: ArrayLike):
        """One step of all games."""
        buffers = super().step(actions)
        for process, action in zip(self._processes, np.asarray(actions).tolist(), strict=True):
            send(process, {"action": action})
        answers = [receive(process) for process in self._processes]
        self.buffers.reward[:] = [answer["reward"] for answer in answers]
        self.returns += [answer["reward"] for answer in answers]
        self._show_tables([answer["table"] for answer in answers])
        return buffers

    def close(self) -> None:
        """Ends the workers."""
        for process in self._processes:
            stop(process)

    def _show_tables(self, tables: list[list[int]]) -> None:
        bits = np.array(tables, np.int64) @ (1 << np.arange(NUM_BITS))
        cpu.show_tables(self.state, self.params, self._outputs, bits)


def start(script: Path, checkout: Path, python: Path | None) -> subprocess.Popen:
    """A process with CybORG's interpreter that runs one of the scripts beside this file, once CybORG is loaded."""
    command = [str(python or sys.executable), "-W", "ignore", str(script), str(checkout.absolute())]
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 — CybORG prints a lot; a pipe that nobody reads would fill up
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
    except OSError as error:
        said.close()
        raise ConfigError(f"cyborg_python is {python}; it cannot be started: {error.strerror}") from None
    process.stderr = said
    try:
        receive(process)
    except RunError as error:
        stop(process)
        raise RunError(f"{error}; give an interpreter with its dependencies as --cyborg-python") from None
    return process


def stop(process: subprocess.Popen) -> None:
    """Ends a process, whatever it is doing."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def send(process: subprocess.Popen, request: dict[str, Any]) -> None:
    """A request to a process."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        receive(process)


def receive(process: subprocess.Popen) -> dict[str, Any]:
    """The next answer of a process; if it has ended, the last thing it said."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        process.stderr.seek(0)
        said = process.stderr.read().strip().splitlines()
        raise RunError(f"CybORG's process ended: {said[-1] if said else 'no message'}")
    try:
        return json.loads(line)
    except ValueError:
        raise RunError(f"CybORG's process said {line.strip()!r} where an answer was due") from None
