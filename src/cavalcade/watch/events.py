"""Changes as server-sent events: files are looked at once a second while somebody watches, and never otherwise."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from cavalcade.runs.files import CHECKPOINTS, CONFIG, HELDOUT, HISTORY, METRICS, NOTES, SEARCH, SUMMARY
from cavalcade.watch import lines
from cavalcade.watch.metrics import reduced
from cavalcade.watch.runs import Listing, is_locked

SECONDS = 1.0
_BEAT = 15.0  # seconds between comments that show a broken connection
_MOST = 1 << 20  # new bytes that are sent as rows; a page loads its curves again after more
_FILES = (CONFIG, HISTORY, NOTES, HELDOUT, CHECKPOINTS, SEARCH, SUMMARY)


def event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class Tail:
    """Follows one run. `look()` returns the events since the last look."""

    def __init__(self, path: Path, offset: int):
        self.path, self.offset = path, offset
        self._version: Any = self._files()

    def look(self) -> list[tuple[str, Any]]:
        """rows: new rows, reduced; reset: curves must be loaded again; change: other files; gone: the run is."""
        if not (self.path / CONFIG).exists():
            return [("gone", {})]
        found = self._rows()
        version = self._files()
        if version != self._version:
            self._version = version
            found.append(("change", {}))
        return found

    def _files(self) -> Any:
        def stamp(name: str) -> int:
            try:
                return (self.path / name).stat().st_mtime_ns
            except OSError:
                return 0

        return [stamp(name) for name in _FILES], is_locked(self.path)

    def _rows(self) -> list[tuple[str, Any]]:
        try:
            size = (self.path / METRICS).stat().st_size
            if size == self.offset:
                return []
            if size < self.offset or size - self.offset > _MOST:
                self.offset = size
                return [("reset", {})]
            found = lines.read(self.path / METRICS, self.offset)
        except OSError:
            return []
        if found.end <= self.offset:
            return []  # the last line is still being written
        self.offset = found.end
        rows = found.groups[0]
        return [("rows", {"end": found.end, **reduced(rows)})] if rows else []


async def follow(request: Request, tails: dict[str, Tail]) -> AsyncIterator[bytes]:
    """Events of runs, each with the run's path, until the page closes or all runs are gone."""
    yield b"retry: 2000\n\n"
    beat = time.monotonic()
    while tails and not await request.is_disconnected():
        for path, tail in list(tails.items()):
            for name, data in await run_in_threadpool(tail.look):
                yield event(name, {"path": path, **data})
                beat = time.monotonic()
                if name == "gone":
                    del tails[path]
        if time.monotonic() - beat > _BEAT:
            yield b":\n\n"
            beat = time.monotonic()
        await asyncio.sleep(SECONDS)


async def follow_list(request: Request, listing: Listing) -> AsyncIterator[bytes]:
    """The runs that were added or changed and those that are gone; looks less often the longer a look takes."""
    yield b"retry: 2000\n\n"
    known: dict[str, Any] = {run["path"]: run for run in await run_in_threadpool(listing)}
    beat = time.monotonic()
    while not await request.is_disconnected():
        begun = time.monotonic()
        now = {run["path"]: run for run in await run_in_threadpool(listing)}
        took = time.monotonic() - begun
        changed = [run for path, run in now.items() if known.get(path) != run]
        gone = [path for path in known if path not in now]
        if changed or gone:
            yield event("runs", {"changed": changed, "gone": gone})
            beat = time.monotonic()
        elif time.monotonic() - beat > _BEAT:
            yield b":\n\n"
            beat = time.monotonic()
        known = now
        await asyncio.sleep(max(SECONDS, 150 * took))
