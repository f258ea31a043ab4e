"""How much of its speed a training or an evaluation keeps on a busy machine.

    python benchmarks/busy.py [--what train hosted mettagrid scoring] [--loops 0 1 2 4] [--repeat 10]
    python benchmarks/busy.py -- cage2 --recipe cage2-bline --episodes 6000

Runs each with busy loops beside it, all numbers of loops in turns, and prints the worst and the median steps/s, and the
worst as a share of the median on the quiet machine. Measure on an otherwise idle machine, after kernels are compiled.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

_TRAININGS = {
    "train": ["cage2", "--recipe", "cage2-meander", "--episodes", "6000"],
    "hosted": ["gym:CartPole-v1", "--steps", "400000"],
    "mettagrid": ["mettagrid", "--simulator", "compiled", "--hardware", "laptop", "--steps", "400000"],
}
_SCORING = """
import time, cavalcade
from cavalcade.envs.cage2.protocol import HORIZONS, REDS
def score(episodes):
    cavalcade.evaluate("react", episodes=episodes, revisions=("head",))
score(20)  # compiles
start = time.perf_counter()
score(20_000)
print(f"scoring: {20_000 * len(REDS) * sum(HORIZONS) / (time.perf_counter() - start):,.0f} steps/s")
"""


@contextmanager
def busy_loops(count: int):
    """Processes beside the block that never sleep."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    time.sleep(0.3)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def printed_speed(command: list[str]) -> float:
    """The speed that a command prints at its end."""
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.findall(r": ([\d,]+) (?:agent-)?steps/s$", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise SystemExit(done.stderr or done.stdout)
    return float(found[-1].replace(",", ""))


def trained(args: list[str]) -> float:
    """Steps per second of a training."""
    with tempfile.TemporaryDirectory() as folder:
        return printed_speed([sys.executable, "-m", "cavalcade", "train", *args, "--run", str(Path(folder, "run"))])


def scored() -> float:
    """Steps per second of the official protocol."""
    return printed_speed([sys.executable, "-c", _SCORING])


def measure(name: str, speed: Callable[[], float], loops: list[int], repeat: int) -> None:
    """Prints a row for each number of busy loops."""
    speed()  # compiles
    found: dict[int, list[float]] = {count: [] for count in loops}
    for _ in range(repeat):
        for count in loops:
            with busy_loops(count):
                found[count].append(speed())
    quiet = statistics.median(found[min(loops)])
    for count, rates in found.items():
        middle = statistics.median(rates)
        print(f"{name:10} {count:11} {min(rates):14,.0f} {middle:15,.0f} {min(rates) / quiet:14.2f}", flush=True)


def main() -> None:
    """Measures what is asked for."""
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, train = sys.argv[1:cut], sys.argv[cut + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", default=["train"], choices=[*_TRAININGS, "scoring"])
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args(own)
    speeds: dict[str, Callable[[], float]] = {name: partial(trained, args) for name, args in _TRAININGS.items()}
    speeds["scoring"] = scored
    chosen = {"given": partial(trained, train)} if train else {name: speeds[name] for name in given.what}
    print("what        busy loops  worst steps/s  median steps/s  worst / quiet")
    for name, speed in chosen.items():
        measure(name, speed, given.loops, given.repeat)


if __name__ == "__main__":
    main()
