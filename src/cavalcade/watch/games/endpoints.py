"""The addresses below /api/game."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from cavalcade.core.errors import CavalcadeError, RunError

ASKED = ("options", "play", "branch", "trace", "files")  # methods of `Library`


def routes_below(root: Path) -> list[Route]:
    """Routes for games of runs and files below a folder."""

    @cache
    def library() -> Any:
        from cavalcade.watch.games.library import Library  # imports torch and Numba, which only games need

        return Library(root)

    return [Route(f"/api/game/{name}", _answer(library, name)) for name in ASKED]


def _answer(library: Callable[[], Any], name: str) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:  # not a coroutine: it runs in a thread of its own
        try:
            return JSONResponse(getattr(library(), name)(request.query_params))
        except HTTPException as error:
            return _refusal(error.status_code, error.detail)
        except RunError as error:
            return _refusal(404, str(error))
        except CavalcadeError as error:
            return _refusal(400, str(error))
        except (OSError, ValueError, KeyError) as error:  # what a damaged file may lead to
            return _refusal(400, f"a file of it is damaged or gone ({type(error).__name__})")

    return endpoint


def _refusal(status: int, why: str) -> Response:
    return JSONResponse({"error": " ".join(why.split())}, status)
