"""The addresses below /api/game."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cavalcade.core.errors import CavalcadeError, RunError
from cavalcade.watch.games.library import Library


def routes_below(root: Path) -> list[Route]:
    """Routes for games of runs and files below a folder."""
    library = Library(root)
    found = {
        "options": library.options, "play": library.play, "branch": library.branch, "trace": library.trace,
        "files": library.files,
    }  # fmt: skip
    return [Route(f"/api/game/{name}", _answer(asked)) for name, asked in found.items()]


def _answer(asked: Callable[[Mapping[str, str]], dict[str, Any]]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # not a coroutine: it runs in a thread of its own
        try:
            return JSONResponse(asked(request.query_params))
        except HTTPException as error:
            return _refusal(error.status_code, error.detail)
        except RunError as error:
            return _refusal(404, str(error))
        except CavalcadeError as error:
            return _refusal(400, str(error))

    return endpoint


def _refusal(status: int, why: str) -> Response:
    return JSONResponse({"error": " ".join(why.split())}, status)
