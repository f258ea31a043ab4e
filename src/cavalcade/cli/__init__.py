"""The command `cavalcade`: one thin module per verb, imported only when it is called."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cavalcade import __version__
from cavalcade.cli.parse import fail
from cavalcade.errors import CavalcadeError

# Verb: what it does, in one line. Its module in this package has a function `run` that takes the arguments.
VERBS = {
    "bench": "measure the speed of Cavalcade on this machine",
    "evaluate": "score a policy on games that it has not seen",
    "export": "write a trained policy as ONNX",
    "play": "watch a game in the terminal, or play it yourself",
    "profile": "show where the time of a training goes, and the bound",
    "record": "record episodes of your own CybORG, and compare them with the game here",
    "replay": "record episodes of a policy on MettaGrid, for MettaScope",
    "report": "draw a search, or learning curves of trainings, into an HTML file",
    "search": "find the order in which hosts are best repaired, and whether it matters",
    "train": "train policies; a run can be killed at any moment and resumed",
    "tune": "measure what suits this machine, and keep it for the next training",
    "verify": "replay recorded CybORG episodes and compare every step",
}


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a verb and exits: 0 done, 1 the verb found a fault, 2 bad input."""
    verb, *args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        sys.exit(_dispatch(verb, args))
    except CavalcadeError as error:
        fail(f"cavalcade {verb}: {error}")
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
        fail(f"cavalcade: unknown command {verb!r}; it must be one of {', '.join(VERBS)}")
    return importlib.import_module(f"cavalcade.cli.{verb}").run(args)


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {line}" for verb, line in VERBS.items())
    return (
        "usage: cavalcade COMMAND [options]\n\n"
        "Trains reinforcement-learning agents in seconds where people now wait for hours.\n\n"
        f"commands:\n{verbs}\n\n"
        "options:\n  -h, --help  show this help, or a command's after its name\n  --version   show the version"
    )
