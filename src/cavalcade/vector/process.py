"""The parent's side of worker processes: start, wake, receive, end."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError
from cavalcade.vector import worker
from cavalcade.vector.buffers import Place, SharedBuffers
from cavalcade.vector.source import Source
from cavalcade.vector.worker import ANSWER, CLOSE, ONE, RESET, fence

_LAST_LINES = 30  # of a worker's standard error
_WRITING = 0.2  # seconds for a worker to write a traceback
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class Wakeup:
    """Wakes another process: an eventfd where there is one, else a pipe."""

    def __init__(self):
        if hasattr(os, "eventfd"):
            self.read_end = self.write_end = os.eventfd(0)
        else:
            self.read_end, self.write_end = os.pipe()

    def set(self) -> None:
        """Wakes the waiting process."""
        os.write(self.write_end, ONE)

    def clear(self) -> None:
        """Consumes pending wakeups; blocks if there are none."""
        os.read(self.read_end, 4096)

    def close(self) -> None:
        for handle in {self.read_end, self.write_end}:
            os.close(handle)


class WorkerProcess(ABC):
    """A process that serves chunks of rows of the shared buffers. Poll `listen` for its answers or its death."""

    listen: int

    def __init__(self, source: Source, index: int, chunks: list[tuple[int, int]], task: dict[str, Any], *fds: int):
        self.index, self.chunks = index, chunks
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 — closed with the worker
        life, self._life = os.pipe()
        task |= {"maker": source.maker, "options": source.options, "chunks": chunks, "worker": index, "life": life}
        task["parent"] = os.getpid()
        ours = source.python == Path(sys.executable)
        task["path"] = [os.path.abspath(part) for part in sys.path] if ours else None
        command = [str(source.python), "-W", "ignore", worker.__file__, json.dumps(task)]
        try:
            self.process = subprocess.Popen(
                command,
                pass_fds=(*fds, life),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                env=os.environ | _ONE_THREAD,
            )
        except OSError as error:
            os.close(self._life)
            self._said.close()
            raise ConfigError(f"{source.python} cannot be started: {error.strerror}") from None
        finally:
            os.close(life)

    def submit(self, chunk: int, command: int, shared: SharedBuffers) -> None:
        """Sends a command for a chunk to the worker."""
        raise NotImplementedError("this worker acts by itself")

    @abstractmethod
    def hear(self, shared: SharedBuffers) -> None:
        """Receives an answer; raises EOFError or OSError if the worker is gone."""

    def ask_where(self) -> None:
        """Makes a hanging worker write its traceback to standard error."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(_WRITING)

    def status(self) -> str:
        """How the process ended, as text."""
        code = self.process.wait()
        return f"died (exit status {code})" if code >= 0 else f"was killed by signal {-code}"

    def last_words(self) -> str:
        """The last lines of its standard error."""
        self._said.seek(0)
        return "\n".join(self._said.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:])

    def end(self) -> None:
        """Kills the process and closes its descriptors."""
        self.process.kill()
        self.process.wait()
        os.close(self._life)
        self._said.close()


class WokenProcess(WorkerProcess):
    """A worker that an eventfd wakes; another, common to all workers, signals what is done."""

    def __init__(
        self,
        source: Source,
        index: int,
        chunks: list[tuple[int, int]],
        task: dict[str, Any],
        *,
        file: int,
        done: Wakeup,
    ):
        self._go = Wakeup()
        task |= {"done": done.write_end, "go": self._go.read_end}
        self.listen, pulse = os.pipe()  # the worker holds the other end: when it dies, polling this end returns
        try:
            super().__init__(source, index, chunks, task, file, pulse, done.write_end, self._go.read_end)
        except ConfigError:
            self._go.close()
            os.close(self.listen)
            raise
        finally:
            os.close(pulse)

    def wake(self) -> None:
        """Wakes the worker."""
        self._go.set()

    def hear(self, shared: SharedBuffers) -> None:
        """Always raises: `listen` reports only the death of the worker, and results come with the common wakeup."""
        raise EOFError

    def end(self) -> None:
        super().end()
        self._go.close()
        os.close(self.listen)


class SharedProcess(WokenProcess):
    """A worker on shared memory."""

    def __init__(
        self,
        source: Source,
        index: int,
        chunks: list[tuple[int, int]],
        places: list[Place],
        size: int,
        *,
        file: int,
        done: Wakeup,
        spin: float,
    ):
        task = {"places": places, "size": size, "shared": file, "spin": spin}
        super().__init__(source, index, chunks, task, file=file, done=done)

    def submit(self, chunk: int, command: int, shared: SharedBuffers) -> None:
        """Writes the command to shared memory and wakes the worker if it sleeps."""
        at = self.index, chunk
        shared.command[at] = command
        fence()
        shared.asked[at] += 1
        fence()
        if shared.asleep[self.index]:
            self.wake()


class PipeProcess(WorkerProcess):
    """A worker that exchanges rows as pickled messages."""

    def __init__(self, source: Source, index: int, chunks: list[tuple[int, int]], places: list[Place], size: int):
        mine, theirs = socket.socketpair()
        self._connection = Connection(mine.detach())
        self.listen = self._connection.fileno()
        task: dict[str, Any] = {"places": places, "size": size, "socket": theirs.fileno()}
        try:
            super().__init__(source, index, chunks, task, theirs.fileno())
        except ConfigError:
            self._connection.close()
            raise
        finally:
            theirs.close()

    def submit(self, chunk: int, command: int, shared: SharedBuffers) -> None:
        """Sends the command with its input rows."""
        shared.command[self.index, chunk] = command
        rows = slice(*self.chunks[chunk])
        names = ("wanted", "episodes", "seed", "index") if command == RESET else ("action",)
        shared.asked[self.index, chunk] += 1
        inputs = {} if command == CLOSE else {name: getattr(shared, name)[rows] for name in names}
        try:
            self._connection.send((chunk, command, inputs))
        except (BrokenPipeError, ConnectionResetError):
            return  # `hear` notices its death

    def hear(self, shared: SharedBuffers) -> None:
        """Copies the rows of an answer into the buffers."""
        answer = self._connection.recv()
        if answer is None:
            shared.ready[self.index] = True
            return
        chunk, fields = answer
        rows = slice(*self.chunks[chunk])
        for name in ANSWER:
            getattr(shared, name)[rows] = fields[name]
        shared.finished[self.index, chunk] = shared.asked[self.index, chunk]

    def end(self) -> None:
        super().end()
        self._connection.close()
