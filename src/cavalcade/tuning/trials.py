"""Trials of settings: each trains in a process of its own, which is killed if the machine runs short of memory."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cavalcade.config.io import as_dict, merged
from cavalcade.core.memory import memory

WORTH_IT = 1.03  # a change must give this much speed to be taken
_SPARE = 0.1  # share of the memory that is left alone
_STARTING = 300.0  # seconds besides those that are measured until a trial is given up
_MEMORY = "out of memory"  # how engines begin a note about it


@dataclass(frozen=True)
class Trial:
    """Settings, how fast they were, and what was reached."""

    words: str  # what was changed
    config: Any
    rate: float = 0.0  # steps per second, 0 if there was none
    collecting: float = 0.0  # share of time
    trouble: str = ""  # why there is no rate
    best: bool = False  # so far
    reward: float | None = None  # mean towards the end: per agent-step, or the return of an episode


Run = Callable[[Any, float], Trial]


def run_on_cpu(config: Any, seconds: float) -> Trial:
    """Trains for a while on the CPU, also where there is a GPU."""
    return run_trial(config, seconds, {"device": "cpu"} if hasattr(config, "device") else {})


def run_trial(config: Any, seconds: float, changes: dict[str, Any] | None = None) -> Trial:
    """Trains for a while in a child process; kills it if memory runs short."""
    task = json.dumps({"config": merged(as_dict(config), changes or {}), "seconds": seconds, "path": sys.path})
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as wrong:
        with subprocess.Popen(_command(task), stdout=said, stderr=wrong, text=True) as process:
            why = _watch(process, _STARTING + seconds)
        said.seek(0)
        wrong.seek(0)
        out, err = said.read(), wrong.read()
    if not why and process.returncode:
        lines = [line for line in err.strip().splitlines() if line.strip()]
        why = lines[-1] if lines else f"exit status {process.returncode}"
    if why:
        return Trial("", config, trouble=why)
    found = json.loads(out.strip().splitlines()[-1])
    trouble = next((note for note in found["notes"] if note.startswith(_MEMORY)), "")
    return Trial("", config, found["rate"], found["collecting"], trouble, reward=found.get("reward"))


def _command(task: str) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "cavalcade.tuning.trial", task]


def _watch(process: subprocess.Popen, longest: float) -> str:
    """Waits for a process; kills it, and says why, if memory runs short or it takes too long."""
    until = time.monotonic() + longest
    while True:
        try:
            process.wait(0.05)
            return ""
        except subprocess.TimeoutExpired:
            found = memory()
            if found.available < _SPARE * found.total:
                process.kill()
                return f"would have used more than {1 - _SPARE:.0%} of the memory"
            if time.monotonic() > until:
                process.kill()
                return f"took longer than {longest:.0f} s"
