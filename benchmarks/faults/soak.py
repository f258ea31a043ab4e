"""A soak: trainings, hosted environments whose workers are killed, searches and a page that is watched, for an hour.

Memory, descriptors, threads, shared memory and temporary files are counted after every round; they must stay flat, and
the last rounds must be as fast as the first, by the processor time of a training, which other programs hardly change.
"""

import os
import random
import shutil
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from benchmarks.faults.commands import PPO, SEARCH, run
from benchmarks.faults.table import Tally

TRAIN = ("train", "cage2", *PPO, "--num-envs", "50", "--rollout-steps", "50", "--episodes", "2000", "--device", "cpu")
HOSTED = (
    "train", "gym:CartPole-v1", *PPO, "--num-envs", "8", "--minibatches", "1", "--steps", "4000", "--workers", "2",
    "--max-restarts", "1000",
)  # fmt: skip
HOSTED_WAYS = {"hosted": (), "stale": ("--staleness", "2")}
WARM = 3  # rounds in which everything is compiled and imported
SLOWEST = 0.97  # of the speed of the first rounds
ROOM = {"memory MB": 1.1, "descriptors": 1.0, "threads": 1.0, "shared memory": 1.0, "temporary files": 1.0}


class Counts(NamedTuple):
    """What this process holds."""

    memory: float
    descriptors: int
    threads: int
    shared: int
    temporary: int


def counted() -> Counts:
    here = psutil.Process()
    shared = len(list(Path("/dev/shm").iterdir())) if Path("/dev/shm").is_dir() else 0
    temporary = len(list(Path(tempfile.gettempdir()).iterdir()))
    return Counts(here.memory_info().rss / 2**20, here.num_fds(), here.num_threads(), shared, temporary)


def killing(rng: random.Random, over: threading.Event) -> None:
    """Kills a worker of this process now and then."""
    while not over.wait(rng.uniform(0.3, 1.5)):
        workers = [child for child in psutil.Process().children() if "spawn_main" in " ".join(_command(child))]
        if workers:
            with_pid = rng.choice(workers).pid
            try:
                os.kill(with_pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def round_of(folder: Path, address: str, rng: random.Random) -> tuple[float, float]:
    """One of everything; returns the seconds of the training, undisturbed: by the clock, and of computing."""
    import urllib.request

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begun, computed = time.perf_counter(), time.process_time()
    run([*TRAIN, "--run", str(folder / "train")])
    seconds = time.perf_counter() - begun, time.process_time() - computed
    over = threading.Event()
    killer = threading.Thread(target=killing, args=(rng, over))
    killer.start()
    try:
        for name, more in HOSTED_WAYS.items():
            run([*HOSTED, *more, "--run", str(folder / name)])
    finally:
        over.set()
        killer.join()
    run([*SEARCH, "--run", str(folder / "search")])
    for place in ("", "api/runs", "api/run?path=train", "api/metrics?path=train", "api/search?path=search"):
        with urllib.request.urlopen(f"{address}{place}") as answer:
            answer.read()
    return seconds


def try_all(tally: Tally, options: Any, share: tuple[int, int]) -> None:
    """Rounds until the time is over; the first few are warm-up."""
    from cavalcade.watch.serve import Watching

    rng, end = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    counts, seconds = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        (folder / "train").mkdir(parents=True)
        address = Watching(folder / "train").address.partition("#")[0]
        while time.monotonic() < end or len(counts) < 2 * WARM:
            seconds.append(round_of(folder, address, rng))
            counts.append(counted())
            said = ", ".join(f"{name} {value:.0f}" for name, value in zip(ROOM, counts[-1], strict=True))
            print(
                f"round {len(counts)}: training {seconds[-1][0]:.2f} s, computing {seconds[-1][1]:.2f} s, {said}",
                flush=True,
            )
    third = max(1, (len(counts) - WARM) // 3)
    first, last = counts[WARM : WARM + third], counts[-third:]
    for i, (name, room) in enumerate(ROOM.items()):
        before, after = (statistics.median(row[i] for row in rows) for rows in (first, last))
        tally.add(name, "rounds", len(counts))
        if after > before * room:
            tally.fail(name, f"{before:.0f} at first, {after:.0f} at the end")
    tally.add("speed", "rounds", len(counts))
    wall, ratio = (
        min(row[i] for row in seconds[WARM : WARM + third]) / min(row[i] for row in seconds[-third:]) for i in (0, 1)
    )
    print(f"speed at the end: {ratio:.3f} of that at first; by the clock {wall:.3f}")
    if ratio < SLOWEST:
        tally.fail("speed", f"{ratio:.3f} of the speed at first")
