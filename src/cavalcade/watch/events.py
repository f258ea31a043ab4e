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
_CHUNK = 100  # runs of the list that are sent at once
_REST = 100  # times the seconds of a look at the list that pass before the next
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
    """All runs, a few at a time, then those that change; looks less often the longer a look takes."""
    yield b"retry: 2000\n\n"
    known: dict[str, Any] = {}
    beat = time.monotonic()
    while not await request.is_disconnected():
        begun = time.monotonic()
        paths = await run_in_threadpool(listing.paths)
        now: dict[str, Any] = {}
        for i in range(0, len(paths), _CHUNK):
            found = await run_in_threadpool(listing.of, paths[i : i + _CHUNK])
            now |= {run["path"]: run for run in found}
            if changed := [run for run in found if known.get(run["path"]) != run]:
                yield event("runs", {"changed": changed})
        took = time.monotonic() - begun
        if now.keys() != known.keys():
            yield event("paths", list(now))
        if time.monotonic() - beat > _BEAT:
            yield b":\n\n"
            beat = time.monotonic()
        known = now
        await asyncio.sleep(max(SECONDS, _REST * took))
