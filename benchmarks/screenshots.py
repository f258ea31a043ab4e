"""Pictures of the live page for README and docs: `python -m benchmarks.screenshots RUNS [--out docs/images]`.

RUNS needs trainings and a search that have finished, e.g. those of the tutorials. Needs Chromium and Pillow.
"""

import argparse
import io
import shutil
import socket
import sys
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from cavalcade.watch.runs import Listing
from cavalcade.watch.serve import run_server

MOST_BYTES = 150_000


def save(page: Page, path: Path) -> None:
    """A picture of at most 150 kB: fewer colours, then a smaller size."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    for scale in (1.0, 0.8, 0.65, 0.5):
        size = (int(picture.width * scale), int(picture.height * scale))
        picture.resize(size, Image.Resampling.LANCZOS).quantize(128).save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTES:
            break
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("Chromium is not installed: tests/install_chromium.sh")
    runs = Listing(options.runs.resolve())()
    trainings = [run["path"] for run in runs if run["kind"] == "training" and run["score"] is not None]
    found = [run["path"] for run in runs if run["kind"] == "search" and run["state"] == "finished"]
    if not trainings or not found:
        sys.exit(f"{options.runs} needs trainings and a finished search")
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    threading.Thread(target=run_server, args=(options.runs, listening), daemon=True).start()
    longest = max(trainings, key=lambda path: (options.runs / path / "metrics.jsonl").stat().st_size)
    shots = [
        ("watch-list", "", ".run", 1200, 640, "light"),
        ("watch-run", f"#/run/{longest}", "canvas[aria-label*='Latest']", 1200, 860, "light"),
        ("watch-compare", f"#/compare?runs={','.join(trainings[:4])}", ".legend .chip", 1200, 860, "dark"),
        (
            "watch-search",
            f"#/run/{found[0]}",
            "section:has-text('Posterior over all orders') canvas",
            1200,
            900,
            "light",
        ),
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, place, selector, width, height, scheme in shots:
            size = {"width": width, "height": height}
            page = browser.new_page(viewport=size, color_scheme=scheme, device_scale_factor=1)  # pyright: ignore
            page.goto(f"{address}/{place}")
            page.wait_for_selector(selector, timeout=120_000)
            page.wait_for_timeout(500)
            save(page, options.out / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
