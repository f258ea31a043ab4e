"""Processes that are forked from one that has imported everything: a start takes tenths of a second instead of three.

For tests that need a process of their own: to kill it, to limit it, to run several at once. Imports are not what they
test; `python -m cavalcade` itself is tested in cli/test_cli.py.
"""

import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 1800  # seconds: other work may have the machine
_OUTPUT = ("stdout", "stderr")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([
    "cavalcade.cli.train", "cavalcade.cli.search", "cavalcade.runs.training", "cavalcade.search.run",
    "cavalcade.ppo.factory", "cavalcade.ppo.engines.cpu.engine", "cavalcade.vector.hosted",
    *(f"cavalcade.targets.{name}" for name in ("cage2", "gym", "mettagrid")),
])  # fmt: skip


class Done(NamedTuple):
    """A process that has ended."""

    returncode: int
    stdout: str
    stderr: str


class Process:
    """function(*args) in a process of its own, with the environment variables of this one and `env`."""

    def __init__(self, function: Callable, *args: Any, cwd: Path | None = None, env: Mapping[str, str] | None = None):
        self._folder = Path(tempfile.mkdtemp())  # of what it prints
        settings = (str(cwd or Path.cwd()), {**os.environ, **(env or {})}, self._folder)
        self._process = _context.Process(target=_run, args=(settings, function, args))
        self._process.start()
        self.pid: int = self._process.pid  # pyright: ignore — it has begun

    def poll(self) -> int | None:
        """The exit status, once it has ended."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> Done:
        """Waits for its end."""
        self._process.join(PATIENCE)
        status = self._process.exitcode
        assert status is not None, f"still running after {PATIENCE} s"
        out, err = ((self._folder / name).read_text() for name in _OUTPUT)
        shutil.rmtree(self._folder)
        self._process.close()
        return Done(status, out, err)


def _run(settings: tuple[str, dict[str, str], Path], function: Callable, args: tuple) -> None:
    folder, environment, output = settings
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, name in enumerate(_OUTPUT, 1):
        opened = os.open(output / name, os.O_WRONLY | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    function(*args)


def start(*args: object, **options: Any) -> Process:
    """`cavalcade …`."""
    return Process(_cavalcade, *map(str, args), **options)


def command(*args: object, **options: Any) -> Done:
    """`cavalcade …` from beginning to end."""
    return start(*args, **options).wait()


def _cavalcade(*args: str) -> None:
    from cavalcade.cli import main

    main(list(args))
