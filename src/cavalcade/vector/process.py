"""Worker processes from the parent's side: started, woken, listened to, ended."""

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

from cavalcade.errors import ConfigError
from cavalcade.vector import worker
from cavalcade.vector.slab import Place, Slab
from cavalcade.vector.source import Source
from cavalcade.vector.worker import ANSWER, CLOSE, ONE, RESET, fence

_LAST_LINES = 30  # of what a worker had to say
_WRITING = 0.2  # seconds that a traceback takes
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class Bell:
    """Wakes another process: an eventfd where there is one, else a pipe."""

    def __init__(self):
        if hasattr(os, "eventfd"):
            self.read_end = self.write_end = os.eventfd(0)
        else:
            self.read_end, self.write_end = os.pipe()

    def ring(self) -> None:
        """Wakes whoever waits."""
        os.write(self.write_end, ONE)

    def hush(self) -> None:
        """Takes note of having been woken."""
        os.read(self.read_end, 4096)

    def close(self) -> None:
        """Gives the descriptors back."""
        for handle in {self.read_end, self.write_end}:
            os.close(handle)


class WorkerProcess(ABC):
    """A process that serves chunks of the rows of a slab. `listen` is what to poll for its answers or its death."""

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

    @abstractmethod
    def ask(self, chunk: int, command: int, slab: Slab) -> None:
        """Tells the worker what to do with a chunk."""

    @abstractmethod
    def hear(self, slab: Slab) -> None:
        """Takes what the worker has to say; raises EOFError or OSError if it is gone."""

    def ask_where(self) -> None:
        """Has a worker that hangs write down where."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(_WRITING)

    def status(self) -> str:
        """How the process ended, in words."""
        code = self.process.wait()
        return f"died (exit status {code})" if code >= 0 else f"was killed by signal {-code}"

    def last_words(self) -> str:
        """The end of what it wrote to its standard error."""
        self._said.seek(0)
        return "\n".join(self._said.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:])

    def end(self) -> None:
        """Ends the process, however it is doing."""
        self.process.kill()
        self.process.wait()
        os.close(self._life)
        self._said.close()


class SharedProcess(WorkerProcess):
    """Works in shared memory: one eventfd wakes it, another, common to all workers, says that something is done."""

    def __init__(
        self,
        source: Source,
        index: int,
        chunks: list[tuple[int, int]],
        places: list[Place],
        size: int,
        *,
        file: int,
        done: Bell,
        spin: float,
    ):
        self._go, bells = Bell(), {"done": done.write_end}
        bells["go"] = self._go.read_end
        self.listen, pulse = os.pipe()  # the worker holds the other end: when it is gone, this one hangs up
        task: dict[str, Any] = {"places": places, "size": size, "slab": file, "spin": spin, **bells}
        try:
            super().__init__(source, index, chunks, task, file, pulse, *bells.values())
        except ConfigError:
            self._go.close()
            os.close(self.listen)
            raise
        finally:
            os.close(pulse)

    def ask(self, chunk: int, command: int, slab: Slab) -> None:
        """Puts the command where the worker looks and wakes it."""
        at = self.index, chunk
        slab.command[at] = command
        fence()
        slab.asked[at] += 1
        fence()
        if slab.asleep[self.index]:
            self._go.ring()

    def hear(self, slab: Slab) -> None:
        """All it says is that it is gone: results come with the common bell."""
        raise EOFError

    def end(self) -> None:
        """Ends the process."""
        super().end()
        self._go.close()
        os.close(self.listen)


class PipeProcess(WorkerProcess):
    """Gets and gives rows as pickled messages."""

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

    def ask(self, chunk: int, command: int, slab: Slab) -> None:
        """Sends the command with the rows it needs."""
        slab.command[self.index, chunk] = command
        rows = slice(*self.chunks[chunk])
        names = ("wanted", "episodes", "seed", "index") if command == RESET else ("action",)
        slab.asked[self.index, chunk] += 1
        inputs = {} if command == CLOSE else {name: getattr(slab, name)[rows] for name in names}
        try:
            self._connection.send((chunk, command, inputs))
        except (BrokenPipeError, ConnectionResetError):
            return  # its end is noticed when it is listened to

    def hear(self, slab: Slab) -> None:
        """Copies the rows of an answer into place."""
        answer = self._connection.recv()
        if answer is None:
            slab.ready[self.index] = True
            return
        chunk, fields = answer
        rows = slice(*self.chunks[chunk])
        for name in ANSWER:
            getattr(slab, name)[rows] = fields[name]
        slab.finished[self.index, chunk] = slab.asked[self.index, chunk]

    def end(self) -> None:
        """Ends the process."""
        super().end()
        self._connection.close()
