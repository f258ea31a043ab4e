"""Runs a script in CybORG's own interpreter; requests and answers are lines of JSON."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError, RunError


def start(script: Path, checkout: Path, python: Path | None) -> subprocess.Popen:
    """Starts a script of this folder with CybORG's interpreter; returns once CybORG is loaded."""
    command = [str(python or sys.executable), "-W", "ignore", str(script), str(checkout.absolute())]
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115 — CybORG prints a lot; an unread pipe would fill up
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
    """Kills the process."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def send(process: subprocess.Popen, request: dict[str, Any]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        receive(process)


def receive(process: subprocess.Popen) -> dict[str, Any]:
    """The next answer of a process; if it has ended, raises `RunError` with its last output."""
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
        raise RunError(f"CybORG's process wrote {line.strip()!r} instead of an answer") from None
