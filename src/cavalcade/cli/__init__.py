"""The command `cavalcade`: one thin module per verb, imported only when it is called."""

import contextlib
import dataclasses
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import tyro

from cavalcade import __version__
from cavalcade.errors import CavalcadeError

# Verb: what it does, in one line. Its module in this package has a dataclass `Options` and a function `run`.
VERBS = {
    "bench": "measure the speed of Cavalcade on this machine",
    "play": "watch a game of CAGE-2 in the terminal, or play it yourself",
    "verify": "replay recorded CybORG episodes and compare every step",
}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a verb and exits: 0 done, 1 the verb found a fault, 2 bad input."""
    verb, *args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        sys.exit(_dispatch(verb, args))
    except CavalcadeError as error:
        _fail(f"cavalcade {verb}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _dispatch(verb: str, args: list[str]) -> int:
    if verb in ("-h", "--help"):
        print(_help())
        return 0
    if verb == "--version":
        print(f"cavalcade {__version__}")
        return 0
    if verb not in VERBS:
        _fail(f"cavalcade: unknown command {verb!r}; it must be one of {', '.join(VERBS)}")
    module = importlib.import_module(f"cavalcade.cli.{verb}")
    return module.run(parse(module.Options, args, verb))


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {line}" for verb, line in VERBS.items())
    return (
        "usage: cavalcade COMMAND [options]\n\n"
        "Trains reinforcement-learning agents in seconds where people now wait for hours.\n\n"
        f"commands:\n{verbs}\n\n"
        "options:\n  -h, --help  show this help, or a command's after its name\n  --version   show the version"
    )


def _fail(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(2)


def parse(options: type, args: Sequence[str], verb: str) -> Any:
    """Options of a verb from its arguments; what is wrong with them is said in one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(options, args=list(args), prog=f"cavalcade {verb}")
    except SystemExit as stop:
        if not stop.code:
            raise
        _fail(f"cavalcade {verb}: {_one_line(said.getvalue(), options)}")


def _one_line(panel: str, options: type) -> str:
    """The first paragraph of tyro's boxed message, on one line; if an option is unknown, with those there are."""
    lines = [line.strip("│ \t") for line in re.sub(r"\x1b\[[0-9;]*m", "", panel).splitlines()]
    body = [line for line in lines if line and line[0] not in "╭╰"]
    rule = next((i for i, line in enumerate(body) if set(line) == {"─"}), len(body))
    text = " ".join(body[:rule])
    if text.startswith("Unrecognized"):
        text += f"; options are {', '.join(map(_flag, dataclasses.fields(options)))}"
    return text[0].lower() + text[1:] if text else "bad options"


def _flag(field: dataclasses.Field) -> str:
    """How a field is written on the command line."""
    if "Positional" in str(field.type):
        return field.name.upper()
    return f"--{field.name.replace('_', '-')}"
