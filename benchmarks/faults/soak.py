"""A soak: trainings, hosted environments whose workers are killed, searches and a page that is watched, for an hour.

Memory, descriptors, threads, shared memory and temporary files are counted after every round; they must stay flat, and
the last rounds must be as fast as the first. Other programs change how fast a machine is, so each round also makes the
same training in a fresh process, and what counts is the ratio of both processor times.
"""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from benchmarks.faults.commands import PPO, SEARCH, run
from benchmarks.faults.forked import forked, prepare
from benchmarks.faults.table import Tally

from cavalcade.vector import worker

TRAIN = ("train", "cage2", *PPO, "--num-envs", "50", "--rollout-steps", "50", "--episodes", "2000", "--device", "cpu")
HOSTED = (
    "train", "gym:CartPole-v1", *PPO, "--num-envs", "8", "--minibatches", "1", "--steps", "4000", "--workers", "2",
    "--max-restarts", "1000",
)  # fmt: skip
HOSTED_WAYS = {"hosted": (), "stale": ("--staleness", "2")}
WARM = 3  # rounds in which everything is compiled and imported
PAIRS = 3  # trainings of a round, here and in a fresh process in turns; the best of each count
SECONDS = 120
KILLS = 4  # at most, in the hosted trainings of a round
Seconds = list[tuple[float, float]]  # of rounds: here, and in a fresh process
SLOWEST = 0.97  # of the speed of the first rounds
ROOM = {"memory MB": 1.1, "descriptors": 1.0, "threads": 1.0, "shared memory": 1.0, "temporary files": 1.0}


class Counts(NamedTuple):
    """What this process holds."""

    memory: float
    descriptors: int
    threads: int
    shared: int
    temporary: int


@contextlib.contextmanager
def temporary_files_in(folder: Path) -> Iterator[None]:
    """Lets this process and its children make temporary files in a folder of their own: others are not counted."""
    before, _ = os.environ.get("TMPDIR"), folder.mkdir()
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    try:
        yield
    finally:
        tempfile.tempdir = None
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before


def counted() -> Counts:
    here = psutil.Process()
    shared = len(list(Path("/dev/shm").iterdir())) if Path("/dev/shm").is_dir() else 0
    temporary = len(list(Path(tempfile.gettempdir()).iterdir()))
    return Counts(here.memory_info().rss / 2**20, here.num_fds(), here.num_threads(), shared, temporary)


def killing(rng: random.Random, over: threading.Event, killed: list[int]) -> None:
    """Kills some workers of this process, one after the other; appends their process numbers to `killed`."""
    most = len(killed) + KILLS
    while len(killed) < most and not over.wait(rng.uniform(0.3, 1.5)):
        workers = [child.pid for child in psutil.Process().children() if worker.__file__ in _command(child)]
        if workers:
            chosen = rng.choice(workers)
            with contextlib.suppress(ProcessLookupError):
                os.kill(chosen, signal.SIGKILL)
                killed.append(chosen)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def trained(folder: Path) -> float:
    """A training; returns its processor time."""
    shutil.rmtree(folder, ignore_errors=True)
    computed = time.process_time()
    run([*TRAIN, "--run", str(folder)])
    return time.process_time() - computed


class Fresh:
    """A process that stays as it was at first, from which processes for one training each are forked."""

    def __init__(self, folder: Path):
        prepare()
        trained(folder)  # what is compiled and imported now, is so in all of them
        ours, theirs = multiprocessing.Pipe()
        if os.fork() == 0:
            ours.close()
            with contextlib.suppress(EOFError):
                while theirs.recv():
                    theirs.send(forked(trained, folder, seconds=SECONDS))
            os._exit(0)
        theirs.close()
        self._asked = ours

    def trained(self) -> float:
        """Processor time of a training in a fresh process."""
        self._asked.send(True)
        ended = self._asked.recv()
        if ended.wrong:
            raise AssertionError(ended.wrong)
        return ended.value


def round_of(folder: Path, address: str, rng: random.Random, fresh: Fresh, killed: list[int]) -> tuple[float, float]:
    """One of everything; returns the processor time of the training, here and in a fresh process.

    killed: the workers that were killed are appended.
    """
    import urllib.request

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pairs = [(trained(folder / "train"), fresh.trained()) for _ in range(PAIRS)]
    seconds = min(here for here, _ in pairs), min(there for _, there in pairs)
    over = threading.Event()
    killer = threading.Thread(target=killing, args=(rng, over, killed))
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

    rng, counts, seconds, killed = random.Random(options.seed), [], [], []
    with tempfile.TemporaryDirectory() as place, temporary_files_in(Path(place) / "temporary"):
        folder = Path(place) / "runs"
        fresh = Fresh(Path(place) / "fresh")
        (folder / "train").mkdir(parents=True)
        address = Watching(folder / "train").address.partition("#")[0]
        end = time.monotonic() + 60 * options.minutes
        while time.monotonic() < end or len(counts) < WARM + 6:
            seconds.append(round_of(folder, address, rng, fresh, killed))
            counts.append(counted())
            said = ", ".join(f"{name} {value:.0f}" for name, value in zip(ROOM, counts[-1], strict=True))
            here, there = seconds[-1]
            print(
                f"round {len(counts)}: training {here:.3f} s, in a fresh process {there:.3f} s, {said}, "
                f"workers killed {len(killed)}",
                flush=True,
            )
    third = (len(counts) - WARM) // 3
    first, last = slice(WARM, WARM + third), slice(-third, None)
    for i, (name, room) in enumerate(ROOM.items()):
        before, after = (statistics.median(row[i] for row in counts[rows]) for rows in (first, last))
        tally.add(name, "rounds", len(counts))
        print(f"{name}: {before:.0f} at first, {after:.0f} at the end")
        if after > before * room:
            tally.fail(name, f"{before:.0f} at first, {after:.0f} at the end")
    tally.add("workers", "killed", len(killed))
    if not killed:
        tally.fail("workers", "none was killed")
    tally.add("speed", "rounds", len(counts))
    speed = speed_at_the_end(seconds[first], seconds[last])
    print(f"speed at the end: {speed:.3f} of that at first")
    if speed < SLOWEST:
        tally.fail("speed", f"{speed:.3f} of the speed at first")


def speed_at_the_end(first: Seconds, last: Seconds) -> float:
    """How fast the last rounds are, relative to the first; each relative to a fresh process at the same time."""
    before, after = (statistics.median(here / there for here, there in rows) for rows in (first, last))
    return before / after
