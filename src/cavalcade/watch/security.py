"""What the server refuses: paths that leave the folder, foreign hosts and origins, missing tokens, other methods.

A page of another site must not read runs through the user's browser. It could by a name that resolves to this machine
(DNS rebinding), so the Host header must name the server's own address; and by a form or an image, so requests that a
browser marks as cross-site are refused.
"""

import hmac
import ipaddress
import os
import socket
import stat
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
ANY = ("0.0.0.0", "::")  # addresses of all interfaces
POSTS = "/api/game/"  # requests below it compute something and change nothing
MOST_BYTES = 1 << 20  # of a request
COOKIE = "cavalcade_watch"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
)
NOTEBOOKS = "'self' http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:"


def resolve(root: Path, relative: str) -> Path:
    """The path below `root` that a request names; raises 404 for whatever is not there or leads out of the folder."""
    parts = relative.split("/") if relative not in ("", ".") else []
    if any(not part or part.startswith(".") or "\\" in part or "\0" in part for part in parts):
        raise HTTPException(404, f"{relative!r} is not a path below the watched folder")
    folder = root.resolve()
    try:
        found = folder.joinpath(*parts).resolve(strict=True)  # follows links: what they point to must be below, too
    except (OSError, RuntimeError, ValueError):
        raise HTTPException(404, f"{relative!r} is not there (any more)") from None
    if not found.is_relative_to(folder):
        raise HTTPException(404, f"{relative!r} is not a path below the watched folder")
    return found


def is_file(path: Path) -> bool:
    """Whether a path in a run directory is a regular file, and not a link that may lead anywhere."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a path in a run directory is a folder, and not a link."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


class Guard:
    """Checks every request before it reaches the application, and adds the headers of every response."""

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", token: str = "", framed: bool = False):
        self.app, self.host, self.token = app, host, token
        self._policy = _POLICY.format(frames=NOTEBOOKS if framed else "'none'")
        self._frames = framed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # no web sockets
        fresh = [False]
        refusal = self._refusal(scope, fresh)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), fresh[0])
            await send(message)

        if refusal:
            status, reason = refusal
            await JSONResponse({"error": reason}, status)(scope, receive, answer)
        else:
            await self.app(scope, receive, answer)

    def _refusal(self, scope: Scope, fresh: list[bool]) -> tuple[int, str] | None:
        """Status and reason if a request is refused."""
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "")
        if not self._own(host):
            return 421, f"host {host!r} is not an address of this server"
        if method not in ("GET", "HEAD") and not (method == "POST" and scope["path"].startswith(POSTS)):
            return 405, f"method {method} is not allowed; this server only reads"
        site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
        navigation = headers.get("sec-fetch-mode") == "navigate" and scope["path"] == "/"
        if site in ("cross-site", "same-site") and not navigation:
            return 403, "requests of other sites are refused"
        if origin and origin.partition("://")[2] != host:
            return 403, f"requests of {origin} are refused"
        if method == "POST":
            if headers.get("content-type", "").partition(";")[0] != "application/json":
                return 415, "the body must be application/json"
            length = headers.get("content-length", "")
            if not length.isdecimal() or int(length) > MOST_BYTES:
                return 413, f"the body must have a length of at most {MOST_BYTES} bytes"
        if self.token and not self._admitted(scope, headers, fresh):
            return 401, "the token is missing or wrong; open the address that `cavalcade watch` printed"
        return None

    def _own(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        name = name.lower().removesuffix(".")
        if name in LOOPBACK or (name and name == self.host.lower()):
            return True
        if self.host not in ANY:
            return False
        return _is_address(name) or name == socket.gethostname().lower()

    def _admitted(self, scope: Scope, headers: Headers, fresh: list[bool]) -> bool:
        """Whether a request carries the token: in its query, which then sets a cookie, or in that cookie."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if hmac.compare_digest(given.encode(), self.token.encode()):
            fresh[0] = True
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(cookie.value.encode(), self.token.encode())

    def _add_headers(self, headers: MutableHeaders, fresh: bool) -> None:
        headers["Content-Security-Policy"] = self._policy
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Cache-Control"] = "no-cache"
        if not self._frames:
            headers["X-Frame-Options"] = "DENY"
        if fresh:
            headers.append("Set-Cookie", f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
