"""The command `cavalcade`: one module per verb, imported only when it is called."""

import atexit
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from cavalcade.cli.help import HELP, HELP_ALL, HelpRequested, help_asked, render
from cavalcade.cli.pages import page_of
from cavalcade.config import renamed
from cavalcade.core.errors import CavalcadeError, out_of_memory
from cavalcade.core.nearest import nearest
from cavalcade.core.version import __version__

# What each verb does, in one line. Its module in this package has a function `run(args)` that returns the exit status.
VERBS = {
    "bench": "measure the speed of Cavalcade on this machine",
    "completion": "print a completion script for bash, zsh or fish",
    "evaluate": "score a policy on held-out games",
    "export": "write a trained policy as ONNX, or as one file",
    "models": "list the trained policies that come with Cavalcade, or print a model card",
    "payoff": "play Blues against Reds; mean returns with 95 % intervals",
    "play": "watch or play a game in the terminal",
    "profile": "show where training spends its time, and the bound",
    "record": "record episodes of a MettaGrid policy, or of the original CybORG",
    "report": "plot a search, or learning curves of training runs, in an HTML file",
    "search": "find the best order to repair hosts in, and whether the order matters",
    "train": "train policies; a run can be killed at any moment and resumed",
    "tune": "measure the fastest settings for this machine, and save them",
    "verify": "replay recorded CybORG episodes and compare every step",
    "watch": "show runs, searches and games live in the browser",
}

RENAMED = {"replay": "record"}  # verbs of 0.1


def fail(message: str) -> NoReturn:
    """Prints an error in one line and exits with status 2."""
    print("".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in message), file=sys.stderr)
    sys.exit(2)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a verb and exits: 0 done, 1 the verb found a fault, 2 bad input."""
    verb, *given = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    verb, args = RENAMED.get(verb, verb), renamed.options(given)
    if "--quiet" not in args:
        for notice in renamed.notices(given, args):
            print(notice, file=sys.stderr)
    try:
        try:
            status = _dispatch(verb, args)
        finally:  # the work is done: no interrupt may disturb the exit handlers, which run in reverse order
            atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        sys.exit(status)
    except CavalcadeError as error:
        fail(f"cavalcade {verb}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        fail(f"cavalcade {verb}: not enough memory; give smaller sizes, or free some")
    except BrokenPipeError:  # the reader of a pipe, e.g. head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:  # of a file or folder that an option names
        where = f"{error.filename}: " if error.filename else ""
        fail(f"cavalcade {verb}: {where}{error.strerror or error}")


def _dispatch(verb: str, args: list[str]) -> int:
    if verb in (*HELP, HELP_ALL):
        print(_help())
        return 0
    if verb == "--version":
        print(f"cavalcade {__version__}")
        return 0
    if verb not in VERBS:
        near = nearest(verb, VERBS, most=1)
        hint = f"did you mean {near[0]}? " if near else ""
        fail(f"cavalcade: unknown command {verb!r}; {hint}it must be one of {', '.join(VERBS)}")
    page = page_of(verb, args) if help_asked(args) else None
    if page is None:
        try:
            return importlib.import_module(f"cavalcade.cli.{verb}").run(args)
        except HelpRequested as asked:
            page = asked.page
    print(render(page, HELP_ALL in args))
    return 0


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {line}" for verb, line in VERBS.items())
    return (
        "usage: cavalcade COMMAND [options]\n\n"
        "Trains reinforcement-learning agents in seconds where people now wait for hours.\n\n"
        f"commands:\n{verbs}\n\n"
        "options:\n  -h, --help   show this help, or that of the command before it\n"
        "  --help-all   show all options of the command before it\n  --version    show the version\n\n"
        "examples:\n  cavalcade train cage2 --recipe cage2-meander --run runs/meander\n"
        "  cavalcade evaluate runs/meander\n  cavalcade search cage2"
    )
