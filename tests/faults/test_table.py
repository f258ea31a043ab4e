"""Tables of the machine of faults."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.faults.table import Tally

ROOT = Path(__file__).parents[2]


def test_what_a_row_does_not_count_is_a_dash():
    tally = Tally("options")
    tally.add("recipes", "tried", 2)
    tally.add("spaces", "tried", 3)
    tally.add("spaces", "refused", 0)
    tally.add("spaces", "left out", 1)
    assert tally.rows() == [
        ["options", "tried", "refused", "left out", "faults"],
        ["recipes", "2", "–", "0", "0"],
        ["spaces", "3", "0", "1", "0"],
        ["all", "5", "0", "1", "0"],
    ]


def test_a_reader_may_stop_early():
    closed, out = os.pipe()
    os.close(closed)
    command = [sys.executable, "-m", "benchmarks.faults", "totals"]
    done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True)
    os.close(out)
    assert (done.returncode, done.stderr) == (0, "")
