"""Status messages for operations that take a while."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from cavalcade.core.compile_events import on_compile

PREPARING = "preparing"
COMPILING = "compiling (once per version and machine, up to half a minute)"


@contextmanager
def waiting(message: str, after: float = 1.0, every: float = 10.0) -> Iterator[Callable[[str], None]]:
    """Prints a message on stderr if the block takes longer than `after` seconds; a spinner on a terminal.

    Yields a function that updates the message. The spinner shows updates at once; elsewhere they are printed, at most
    one every `every` seconds. Once a kernel is compiled, the message says so.
    """
    console = Console(file=sys.stderr)
    status = console.status(message)
    shown = time.monotonic()
    begun = threading.Event()

    def say(words: str) -> None:
        print(f"{words} ...", file=sys.stderr, flush=True)

    def begin() -> None:
        begun.set()
        status.start() if console.is_terminal else say(message)

    def news(words: str) -> None:
        nonlocal shown
        status.update(words)
        if not console.is_terminal and time.monotonic() - shown >= every:
            shown = time.monotonic()
            say(words)

    def compiling() -> None:
        nonlocal message
        if message != COMPILING:
            message = COMPILING
            status.update(message)
            if begun.is_set() and not console.is_terminal:
                say(message)

    timer = threading.Timer(after, begin)
    timer.daemon = True
    timer.start()
    try:
        with on_compile(compiling):
            yield news
    finally:
        timer.cancel()
        timer.join()
        status.stop()
