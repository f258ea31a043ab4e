"""A word to the user while something takes its time."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def waiting(message: str, after: float = 1.0) -> Iterator[None]:
    """Says on stderr what is going on if the block takes longer than `after` seconds; a spinner on a terminal."""
    console = Console(file=sys.stderr)
    status = console.status(message)
    show = status.start if console.is_terminal else lambda: print(f"{message} ...", file=sys.stderr, flush=True)
    timer = threading.Timer(after, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


COMPILING = "compiling (once per version and machine, up to half a minute)"
