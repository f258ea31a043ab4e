"""Takes the pictures of docs/viewer.md with a Chromium.

    python benchmarks/viewer_pictures.py RUN [--seed 1] [--step 20] [--out docs/images]

RUN: a run that was trained on CAGE-2. The second picture shows both futures of the first idea of the branch panel.
"""

import argparse
import shutil
import threading
import time
from pathlib import Path

import uvicorn
from playwright.sync_api import sync_playwright

from cavalcade.watch.server import make_app

_PATIENCE = 120_000  # ms


def main() -> None:
    """Starts a server, opens the pages and writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--step", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    given = parser.parse_args()
    run = given.run.resolve()
    server = uvicorn.Server(uvicorn.Config(make_app(run.parents[0]), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    address = f"http://127.0.0.1:{port}/#/game?run={run.name}&seed={given.seed}&at={given.step}"
    try:
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(_PATIENCE)
            page.goto(address)
            page.locator(".idea").first.click()
            page.wait_for_selector(".worth")
            page.screenshot(path=given.out / "viewer.png", full_page=True)
            page.emulate_media(color_scheme="dark")
            page.get_by_text("Watch both futures").click()
            page.wait_for_selector(".boards.two")
            page.screenshot(path=given.out / "viewer-branch.png")
            browser.close()
    finally:
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
