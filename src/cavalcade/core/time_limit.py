"""A time limit for code of other people that runs in this process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AGAIN = 1.0  # seconds until it is interrupted once more, if it caught the first


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` inside the block after so many seconds.

    Signals reach the main thread only, and nothing interrupts a loop in C: there, the block runs on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise TimeoutError(f"no answer for {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    earlier = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *earlier)
        signal.signal(signal.SIGALRM, before)
