"""Tells when Numba compiles, as opposed to loading a kernel from the cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba.core.event


@contextmanager
def on_compile(call: Callable[[], None]) -> Iterator[None]:
    """Calls back whenever the compilation of a kernel begins."""
    with numba.core.event.install_listener("numba:compile", _Listener(call)):
        yield


class _Listener(numba.core.event.Listener):
    def __init__(self, call: Callable[[], None]):
        self._call = call

    def on_start(self, event: Any) -> None:
        self._call()

    def on_end(self, event: Any) -> None:
        pass
