"""A client without a network, and a browser if there is one: one for all tests of a process."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.testclient import TestClient

from cavalcade.watch.server import make_app

CHROMIUM = shutil.which("chromium")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip


PATIENCE = 600_000  # ms; the machine may be busy


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def client(runs) -> TestClient:
    return TestClient(make_app(runs), base_url="http://127.0.0.1:8642")


@pytest.fixture(scope="session")
def browser() -> Iterator:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: tests/install_chromium.sh")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield found
        found.close()


@contextmanager
def serving(app) -> Iterator[str]:
    """A server in a thread; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        options = {"lifespan": "off", "log_level": "critical", "timeout_graceful_shutdown": 1, "ws": "none"}
        server = uvicorn.Server(uvicorn.Config(app, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def address(runs) -> Iterator[str]:
    with serving(make_app(runs)) as found:
        yield found


@pytest.fixture
def page(browser, address) -> Iterator:
    """A page whose console must stay silent; it closes before the server does."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    opened.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    yield opened
    context.close()
    assert not complaints
