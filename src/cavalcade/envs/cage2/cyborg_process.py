"""A script in CybORG's own interpreter: requests and answers are lines of JSON."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cavalcade.errors import ConfigError, RunError


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
