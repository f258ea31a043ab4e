"""Status messages for operations that take a while."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def waiting(message: str, after: float = 1.0, every: float = 10.0) -> Iterator[Callable[[str], None]]:
    """Prints a message on stderr if the block takes longer than `after` seconds; a spinner on a terminal.

    Yields a function that updates the message. The spinner shows updates at once; elsewhere they are printed, at most
    one every `every` seconds.
    """
    console = Console(file=sys.stderr)
    status = console.status(message)
    shown = time.monotonic()

    def say(words: str) -> None:
        print(f"{words} ...", file=sys.stderr, flush=True)

    def news(words: str) -> None:
        nonlocal shown
        status.update(words)
        if not console.is_terminal and time.monotonic() - shown >= every:
            shown = time.monotonic()
            say(words)

    timer = threading.Timer(after, status.start if console.is_terminal else lambda: say(message))
    timer.daemon = True
    timer.start()
    try:
        yield news
    finally:
        timer.cancel()
        timer.join()
        status.stop()


COMPILING = "compiling (once per version and machine, up to half a minute)"
