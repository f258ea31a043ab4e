"""Starts the server: in this process, in a thread for a notebook, or as a process beside a training."""

import html
import ipaddress
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from cavalcade.core.errors import ConfigError

HOST, PORT = "127.0.0.1", 8642
_TRIED = 50  # ports, if none is given


def check_installed() -> None:
    """Raises `ConfigError` if the extra `watch` is not installed."""
    if not (find_spec("starlette") and find_spec("uvicorn")):
        raise ConfigError("watch needs two packages: pip install 'cavalcade[watch]'")


def listen(host: str = HOST, port: int | None = None) -> socket.socket:
    """A listening socket: on the port, or on the first that is free."""
    if port is not None and not 1 <= port <= 65535:
        raise ConfigError(f"port is {port}; it must be from 1 to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise ConfigError(f"host is {host!r}; it must be an address or a name of this machine") from None
    for tried in [port] if port else range(PORT, PORT + _TRIED):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((address[0], tried))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            reason = error.strerror
    if port:
        raise ConfigError(f"port is {port} on {host}: {reason}; choose another --port, or leave it out")
    raise ConfigError(f"no port from {PORT} to {PORT + _TRIED - 1} is free on {host}: {reason}; choose another --port")


def address_of(listening: socket.socket, host: str = HOST, token: str = "", page: str = "") -> str:
    """The address to open in a browser."""
    port = listening.getsockname()[1]
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    query = f"?token={token}" if token else ""
    return f"http://{shown}:{port}/{query}{page}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    return secrets.token_urlsafe(24)


def folder_of(run: Path) -> tuple[Path, str]:
    """The folder that is watched for a run, and the page of the run: the folder that it is in, if that holds runs."""
    run = run.absolute()
    if run.parent in (Path.cwd(), Path.home(), Path(run.anchor)):
        return run, "#/run/"
    return run.parent, f"#/run/{quote(run.name)}"


def run_server(
    root: Path, listening: socket.socket, *, host: str = HOST, token: str = "", framed: bool = False
) -> None:
    """Answers requests until a signal ends it, or the program if it runs in a thread."""
    import uvicorn

    from cavalcade.watch.server import make_app

    config = uvicorn.Config(
        make_app(root, host=host, token=token, framed=framed),
        lifespan="off", log_level="critical", access_log=False, server_header=False, ws="none",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listening])


class Watching:
    """A server in a thread of this process, and the page of a run; a notebook shows it as a frame."""

    def __init__(self, run: Path, *, port: int | None = None, height: int = 720):
        check_installed()
        root, page = folder_of(run)
        listening = listen(port=port)
        self.height, self.address = height, address_of(listening, page=page)
        options = {"root": root, "listening": listening, "framed": True}
        threading.Thread(target=run_server, kwargs=options, name="cavalcade watch", daemon=True).start()

    def __repr__(self) -> str:
        return f"watching at {self.address}"

    def _repr_html_(self) -> str:
        address = html.escape(self.address)
        style = f"width:100%;height:{self.height}px;border:1px solid #ccc;border-radius:8px"
        frame = f'<iframe src="{address}" title="Cavalcade" style="{style}"></iframe>'
        return f'{frame}<p><a href="{address}">{address}</a></p>'


@contextmanager
def beside(run: Path, wanted: bool, *, several: bool = False) -> Iterator[None]:
    """Shows a run, or a folder of several, while the block trains: prints the address of a server beside it.

    It is a process of low priority. The socket is open before it is ready, so that nothing waits for it; it ends when
    this process does.
    """
    if not wanted:
        yield
        return
    check_installed()
    root, page = (run.absolute(), "") if several else folder_of(run)
    with listen() as listening:
        print(f"watch {address_of(listening, page=page)}", flush=True)
        handle = listening.fileno()
        command = [sys.executable, "-m", "cavalcade.watch", str(root), str(handle)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[handle], start_new_session=True)
    try:
        yield
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait()


def end_with_parent() -> None:
    """Ends this process when the one that started it closes its pipe, which it does however it ends."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
