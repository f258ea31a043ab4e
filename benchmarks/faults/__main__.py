"""`python -m benchmarks.faults`: see the package."""

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # cases are small; --jobs is for more cores

PARTS = ("crashes", "chains", "files", "options", "disks", "resources", "soak")


def main() -> None:
    from benchmarks.faults import __doc__ as about
    from benchmarks.faults.results import FILE, read, totals

    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("parts", nargs="*", choices=[*PARTS, "totals", []], default=[], help="what; all but soak")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="so many faults of each kind; by default every one")
    parser.add_argument("--only", nargs="*", default=[], help="rows of the table, e.g. 'train cpu'")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--share", default="1/1", help="which of how many parts to do")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="per part; what is left out then is counted"
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="of the soak")
    parser.add_argument("--results", type=Path, help="file to which each part appends a line")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.parts == ["totals"]:
        try:
            print("\n\n".join(map(str, totals(read(options.results or FILE)))), flush=True)
        except BrokenPipeError:  # a reader such as head has seen enough; what is left must not fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    lost = sum(_part(part, options) for part in options.parts or PARTS[:-1])
    sys.exit(1 if lost else 0)


def _part(part: str, options: argparse.Namespace) -> int:
    """Tries one part and prints its table; returns the number of faults."""
    from benchmarks.faults.forked import prepare, processor_seconds
    from benchmarks.faults.results import append
    from benchmarks.faults.table import Tally

    begun, computed = time.monotonic(), processor_seconds()
    tally = Tally(part, until=begun + options.seconds)
    if options.jobs > 1 and part != "soak":
        _spread(part, options, tally)
    else:
        which, of = map(int, options.share.split("/"))
        if part != "soak":
            prepare()
        importlib.import_module(f"benchmarks.faults.{part}").try_all(tally, options, (which - 1, of))
    if options.json:
        print(tally.text())
        return 0
    seconds, computed = time.monotonic() - begun, processor_seconds() - computed
    print(f"\n{tally}\n\nseed {options.seed}, {seconds:.0f} s, {computed:.0f} s of processor time\n", flush=True)
    if options.results:
        what = {name: getattr(options, name) for name in ("only", "seed", "share", "count")}
        append(options.results, tally, part=part, **what, seconds=round(seconds), processor_seconds=round(computed))
    return tally.lost


def _spread(part: str, options: argparse.Namespace, tally: Any) -> None:
    """The same in several processes, each with a share."""
    command = [sys.executable, "-m", "benchmarks.faults", part, "--seed", str(options.seed), "--json"]
    command += ["--count", str(options.count), "--seconds", str(options.seconds)]
    command += ["--only", *options.only] if options.only else []
    shares = [[*command, "--share", f"{i + 1}/{options.jobs}"] for i in range(options.jobs)]
    running = [subprocess.Popen(share, stdout=subprocess.PIPE, text=True) for share in shares]
    for process in running:
        out, _ = process.communicate()
        *said, last = out.splitlines() or [""]
        print("\n".join(said), flush=True)
        if process.returncode or not last.startswith("{"):
            tally.fail("the machine itself", f"a process ended with {process.returncode}")
        else:
            tally.merge(last)


if __name__ == "__main__":
    main()
