"""How much of its speed a training keeps on a busy machine.

    python benchmarks/busy.py [--loops 0 1 2 4] [--repeat 10] [-- cage2 --recipe cage2-meander --episodes 6000]

Runs the training with busy loops beside it and prints the worst and the median steps/s, and the worst as a share of the
median on the quiet machine. Measure on an otherwise idle machine, after kernels are compiled.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

_DEFAULT = ["cage2", "--recipe", "cage2-meander", "--episodes", "6000"]


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


def steps_per_second(args: list[str]) -> float:
    """The speed that a training prints at its end."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "cavalcade", "train", *args, "--run", str(Path(folder, "run"))]
        done = subprocess.run(command, capture_output=True, text=True)
    found = re.findall(r": ([\d,]+) steps/s$", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise SystemExit(done.stderr or done.stdout)
    return float(found[-1].replace(",", ""))


def main() -> None:
    """Prints a row for each number of busy loops."""
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    own, train = sys.argv[1:cut], sys.argv[cut + 1 :] or _DEFAULT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--repeat", type=int, default=10)
    given = parser.parse_args(own)
    steps_per_second(train)  # compiles
    quiet = None
    print("busy loops  worst steps/s  median steps/s  worst / quiet")
    for count in given.loops:
        with busy_loops(count):
            found = [steps_per_second(train) for _ in range(given.repeat)]
        quiet = quiet or statistics.median(found)
        print(
            f"{count:10}  {min(found):13,.0f}  {statistics.median(found):14,.0f}  {min(found) / quiet:13.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
