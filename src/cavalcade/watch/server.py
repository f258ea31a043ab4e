"""The application: pages, their data, and the stream of changes. It reads below one folder and writes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from cavalcade.runs.files import CONFIG, METRICS
from cavalcade.watch import games, security
from cavalcade.watch.details import details
from cavalcade.watch.events import Tail, follow, follow_list
from cavalcade.watch.metrics import AXES, curves
from cavalcade.watch.runs import Listing
from cavalcade.watch.searches import Findings, overview

STATIC = Path(__file__).parent / "static"
_MOST_POINTS, _MOST_RUNS = 4000, 20


class Pages:
    """What the page asks for. Each method answers one address."""

    def __init__(self, root: Path):
        self.root = root
        self._listing, self._findings = Listing(root), Findings()

    def runs(self, request: Request) -> Response:
        """The runs that changed last; the others follow as events."""
        most = int(_number(request, "most", 1e6, 1) or 0)
        paths = self._listing.paths()
        return _json({"root": self.root.name, "total": len(paths), "runs": self._listing.of(paths[:most])})

    def run(self, request: Request) -> Response:
        path = self._run(request)
        return _json({"summary": self._listing.summary(path), **details(path)})

    def metrics(self, request: Request) -> Response:
        """Curves of a run: points, axis, low and high as in `curves`; lines=0 leaves out those of each policy."""
        path = self._run(request)
        points = int(_number(request, "points", 600, 10, _MOST_POINTS) or 0)
        axis = request.query_params.get("axis", AXES[0])
        if axis not in AXES:
            raise HTTPException(400, f"axis is {axis!r}; it must be one of {', '.join(AXES)}")
        low, high = (_number(request, name, None) for name in ("low", "high"))
        file = path / METRICS
        if not security.is_file(file):
            return _json({"end": 0, "damaged": 0, "sampled": False, "rows": 0, "axes": {}, "metrics": {}})
        try:
            return JSONResponse(curves(file, points, axis, low, high, request.query_params.get("lines") != "0"))
        except OSError as error:
            raise HTTPException(404, f"{METRICS} cannot be read: {error.strerror}") from None

    def search(self, request: Request) -> Response:
        return _json(overview(self._run(request)))

    def findings(self, request: Request) -> Response:
        return _json(self._findings(self._run(request)))

    async def events(self, request: Request) -> Response:
        """Changes of the list, or of runs: `run` and `offset`, the size of its metrics that is known, for each."""
        paths, offsets = request.query_params.getlist("run"), request.query_params.getlist("offset")
        if len(paths) != len(offsets) or len(paths) > _MOST_RUNS or not all(map(str.isdecimal, offsets)):
            raise HTTPException(400, f"give run and offset for each of at most {_MOST_RUNS} runs")
        tails = {path: Tail(self._below(path), int(offset)) for path, offset in zip(paths, offsets, strict=True)}
        stream = follow(request, tails) if tails else follow_list(request, self._listing)
        return StreamingResponse(stream, media_type="text/event-stream")

    def _run(self, request: Request) -> Path:
        return self._below(request.query_params.get("path", ""))

    def _below(self, relative: str) -> Path:
        """The directory of a run."""
        found = security.resolve(self.root, relative)
        if not security.is_file(found / CONFIG):
            raise HTTPException(404, f"{relative!r} is not a run (any more)")
        return found


def make_app(root: Path, *, host: str = "127.0.0.1", token: str = "", framed: bool = False) -> Starlette:
    """The server's application for the runs below `root`; framed: a notebook may show it in a frame."""
    root = root.resolve()
    pages = Pages(root)
    names: dict[str, Callable[[Request], Any]] = {
        "runs": pages.runs, "run": pages.run, "metrics": pages.metrics, "search": pages.search,
        "search/findings": pages.findings, "events": pages.events,
    }  # fmt: skip
    routes: list[BaseRoute] = [
        Route("/", lambda _: FileResponse(STATIC / "index.html")),
        Mount("/static", StaticFiles(directory=STATIC)),
        *(Route(f"/api/{name}", answer) for name, answer in names.items()),
        *games.routes(root),
    ]
    guard = Middleware(security.Guard, host=host, token=token, framed=framed)
    return Starlette(routes=routes, middleware=[guard], exception_handlers={HTTPException: _refused})


def _json(content: Any) -> Response:
    return JSONResponse(_finite(content))


def _finite(content: Any) -> Any:
    """Plain data that JSON can express, whatever a damaged file contained."""
    if isinstance(content, float):
        return content if content - content == 0 else None
    if isinstance(content, dict):
        return {str(name): _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return content if isinstance(content, str | int | None) else str(content)


def _number(
    request: Request, name: str, default: float | None, least: float = float("-inf"), most: float = float("inf")
) -> float | None:
    text = request.query_params.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise HTTPException(400, f"{name} is {text!r}; it must be a number") from None
    if not least <= value <= most:
        raise HTTPException(400, f"{name} is {text}; it must be from {least:g} to {most:g}")
    return value


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
