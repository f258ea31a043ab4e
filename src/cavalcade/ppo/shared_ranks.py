"""Messages between the ranks of one machine through shared memory: microseconds where a socket takes a millisecond.

Each rank writes its data into a buffer of its own, counts it, and waits until the others have counted theirs. There are
two buffers per rank: one is read while the next message is written. The memory has no name, and no limit but the
machine's: /dev/shm is small in many containers.
"""

import mmap
import os
import select
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import WorkerError
from cavalcade.vector.buffers import anonymous_file
from cavalcade.vector.worker import fence, yield_core

CAPACITY = 1 << 24  # bytes of a message; larger ones take the socket
_LINE = 64  # bytes of a counter, so that ranks do not share a cache line
_SPIN = 0.002  # seconds of polling before sleeping
_NAP = 0.00005
_LOOK = 0.1  # seconds between looks whether the others are alive


def available() -> bool:
    """Whether this system can watch other processes and share memory without a name."""
    return hasattr(os, "pidfd_open") and hasattr(os, "memfd_create")


class SharedRanks:
    """The buffers of all ranks.

    broadcast: sends bytes of rank 0 to all; processes: ids of all ranks' processes; patience: seconds to wait.
    """

    def __init__(
        self, rank: int, processes: list[int], broadcast: Callable[[bytes], bytes], barrier: Callable[[], None],
        patience: float,
    ):  # fmt: skip
        self._rank, self._patience, size = rank, patience, len(processes)
        length = size * (_LINE + 2 * CAPACITY)
        if rank == 0:
            handle = anonymous_file(length)
            broadcast(str(handle).encode())
        else:
            handle = os.open(f"/proc/{processes[0]}/fd/{broadcast(b'').decode()}", os.O_RDWR)
        try:
            memory = mmap.mmap(handle, length)
            barrier()
        finally:
            os.close(handle)
        self._counts = np.ndarray((size, _LINE // 8), np.int64, memory)[:, 0]
        self._buffers = np.ndarray((size, 2, CAPACITY), np.uint8, memory, size * _LINE)
        self._others = [os.pidfd_open(pid) for i, pid in enumerate(processes) if i != rank]
        self._alive = select.poll()
        for other in self._others:
            self._alive.register(other, select.POLLIN)
        self._sent = 0

    def exchange(self, data: NDArray) -> list[NDArray]:
        """Sends an array to all ranks; returns those of all, valid until the next but one. Sizes must be equal."""
        raw = data.reshape(-1).view(np.uint8)
        here = self._sent % 2
        self._buffers[self._rank, here, : raw.size] = raw
        fence()
        self._sent += 1
        self._counts[self._rank] = self._sent
        self._wait()
        fence()
        return [part.view(data.dtype) for part in self._buffers[:, here, : raw.size]]

    def _wait(self) -> None:
        start = time.monotonic()
        look = start + _LOOK
        while self._counts.min() < self._sent:
            now = time.monotonic()
            if now - start < _SPIN:
                yield_core()
                continue
            time.sleep(_NAP)
            if now < look:
                continue
            look = now + _LOOK
            if self._alive.poll(0) and self._counts.min() < self._sent:
                raise WorkerError("another rank is gone")
            if now - start > self._patience:
                raise WorkerError(f"another rank has not answered for {self._patience:g} s")

    def close(self) -> None:
        """Stops watching the other ranks."""
        for other in self._others:
            os.close(other)
        self._others.clear()
