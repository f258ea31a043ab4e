"""The application: pages, their data, and the stream of changes. It reads below one folder and writes nothing."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from cavalcade.watch import security

STATIC = Path(__file__).parent / "static"


def make_app(root: Path, *, host: str = "127.0.0.1", token: str = "", framed: bool = False) -> Starlette:
    """The server's application for the runs below `root`; framed: a notebook may show it in a frame."""
    routes: list[BaseRoute] = [
        Route("/", lambda _: FileResponse(STATIC / "index.html")),
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/api/runs", lambda _: JSONResponse({"root": str(root), "runs": []})),
        *_games(root),
    ]
    guard = Middleware(security.Guard, host=host, token=token, framed=framed)
    return Starlette(routes=routes, middleware=[guard], exception_handlers={HTTPException: _refused})


def _games(root: Path) -> list[Route]:
    """The routes of the game viewer."""
    if find_spec("cavalcade.watch.games") is None:
        return []
    return import_module("cavalcade.watch.games").routes(root)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
