"""Figures of `cavalcade watch`: a folder of 1,000 runs, a long run, CPU beside a training, memory with a 1 GB log.

    python benchmarks/watch.py [--gigabytes 1] [--seconds 30] [--repeat 5]

Times are those of the first request after the server started; with Chromium also until the page has drawn its curves,
each time in a new browser and with a new server.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

CONFIG = """\
target: cage2
seed: 0
task: {{red: meander, revision: head, horizon: 100}}
ppo: {{num_envs: 50, rollout_steps: 100, learning_rate: 0.002, hidden: [64, 64]}}
episodes: {episodes}
policies: {policies}
"""
NAMES = (
    "policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "grad_norm", "learning_rate",
    "distinct_observations",
)  # fmt: skip


def row(update: int, policies: int) -> str:
    returns = ", ".join(f"{-300 / (1 + update / 500) - p:.4f}" for p in range(policies))
    rest = ", ".join(f'"{name}": [{", ".join([f"{0.1 / (1 + update / 900):.6g}"] * policies)}]' for name in NAMES)
    head = f'"update": {update}, "steps": {5000 * policies * update}, "episodes": {50 * policies * update}'
    return f'{{{head}, "return": [{returns}], {rest}, "seconds": {0.2 * update:.3f}}}\n'


def make_run(path: Path, updates: int, policies: int, gigabytes: float = 0.0) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(CONFIG.format(episodes=100 * max(updates, 1), policies=policies))
    (path / ".lock").touch()
    with (path / "metrics.jsonl").open("w") as file:
        update = 0
        while update < updates or file.tell() < gigabytes * 1e9:
            file.writelines(row(u + 1, policies) for u in range(update, update + 100))
            update += 100
    return path


@contextmanager
def server(root: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server in a process of its own, waiting for its first request."""
    command = [sys.executable, "-m", "cavalcade", "watch", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    address = process.stdout.readline().split()[1].rstrip("/")
    get(f"{address}/static/icon.svg")  # it has started
    try:
        yield address, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def get(address: str) -> tuple[float, int]:
    """Seconds and bytes of a request."""
    begun = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        size = len(answer.read())
    return time.perf_counter() - begun, size


def peak_mb(process: psutil.Process) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def drawn(root: Path, place: str, selector: str, repeat: int) -> str:
    """Seconds until a page has drawn something, in Chromium; the browser itself is already running."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return "not measured: no Chromium"
    from playwright.sync_api import sync_playwright

    seconds = []
    with sync_playwright() as playwright:
        for _ in range(repeat):
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            with server(root) as (address, _process):
                page = browser.new_page()
                page.goto("about:blank")
                begun = time.perf_counter()
                page.goto(f"{address}/{place}")
                page.wait_for_selector(selector)
                seconds.append(time.perf_counter() - begun)
                browser.close()
    return f"{min(seconds):.2f} s (best of {repeat}), {statistics.median(seconds):.2f} s (median)"


def folder_of_runs(root: Path, repeat: int) -> None:
    for i in range(1000):
        make_run(root / f"run-{i:04d}", 100, 1)
    with server(root) as (address, _):
        first, size = get(f"{address}/api/runs?most=24")
        rest, _ = get(f"{address}/api/runs")
        again, _ = get(f"{address}/api/runs")
        print(
            f"1,000 runs: first page {first:.2f} s, {size / 1e3:.0f} kB; all {rest:.2f} s, {again:.2f} s again",
            flush=True,
        )
    print(f"1,000 runs: page drawn after {drawn(root, '', '.run', repeat)}", flush=True)


def long_run(root: Path, repeat: int) -> None:
    make_run(root / "long", 100_000, 8)
    size = (root / "long" / "metrics.jsonl").stat().st_size
    with server(root) as (address, _):
        one, a = get(f"{address}/api/run?path=long")
        two, b = get(f"{address}/api/metrics?path=long&points=300&lines=0")
        three, c = get(f"{address}/api/metrics?path=long&points=800")
        print(
            f"100,000 updates × 8 policies ({size / 1e6:.0f} MB): first curves {one + two:.2f} s, all {three:.2f} s, "
            f"{(a + b + c) / 1e6:.2f} MB sent",
            flush=True,
        )
    seconds = drawn(root, "#/run/long", "canvas[aria-label*='Latest: mean −']", repeat)
    print(f"100,000 updates × 8 policies: page drawn after {seconds}", flush=True)


def beside_a_training(root: Path, seconds: float) -> None:
    """A training of 10 updates a second and 8 policies that writes its log every 2 s, with one page that watches it."""
    path = make_run(root / "live", 1000, 8)
    with server(root) as (address, process):
        offset = (path / "metrics.jsonl").stat().st_size
        answer = urllib.request.urlopen(f"{address}/api/events?run=live&offset={offset}")
        received = [0]

        def read() -> None:
            for line in answer:
                received[0] += line.startswith(b"event: rows")

        threading.Thread(target=read, daemon=True).start()
        time.sleep(2)
        before, begun, update = sum(process.cpu_times()[:2]), time.monotonic(), 1000
        while time.monotonic() - begun < seconds:
            with (path / "metrics.jsonl").open("a") as file:
                file.writelines(row(u + 1, 8) for u in range(update, update + 20))
            update += 20
            if update % 40 == 0:
                get(f"{address}/api/run?path=live")  # the page reads the state again
            time.sleep(2)
        used = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun)
        print(f"beside a training: {used:.2%} of a core, {received[0]} events in {seconds:.0f} s", flush=True)


def huge_log(root: Path, gigabytes: float) -> None:
    make_run(root / "huge", 0, 8, gigabytes)
    with server(root) as (address, process):
        idle = peak_mb(process)
        listed, _ = get(f"{address}/api/runs")
        whole, size = get(f"{address}/api/metrics?path=huge&points=800")
        part, _ = get(f"{address}/api/metrics?path=huge&points=800&axis=update&low=400000&high=402000")
        print(
            f"log of {gigabytes:g} GB: list {listed:.2f} s, curves {whole:.2f} s ({size / 1e6:.2f} MB), "
            f"zoom {part:.2f} s; peak memory {peak_mb(process):.0f} MB, {idle:.0f} MB of it before the first request",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        folder_of_runs(root / "many", options.repeat)
        long_run(root / "one", options.repeat)
        beside_a_training(root / "beside", options.seconds)
        huge_log(root / "large", options.gigabytes)


if __name__ == "__main__":
    main()
