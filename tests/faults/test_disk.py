"""The model of a disk: what is recorded is what happens, and a power cut takes what was not flushed."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.faults.disk import FOLDER, Disk, Op, after_kill, after_power_loss, read_disk
from benchmarks.faults.journal import recording

WORK = """
import os, sys, shutil
from pathlib import Path
from benchmarks.faults.journal import killed, recording

def work(root):
    (root / "a").mkdir()
    with (root / "a" / "x").open("w") as file:
        file.write("one")
        file.flush()
        file.write("two")
        file.flush()
        os.fsync(file.fileno())
    (root / "a" / "x").rename(root / "a" / "y")
    with (root / "a" / "y").open("r+b", buffering=0) as file:
        file.truncate(4)
    (root / "log").write_text("log")
    with (root / "log").open("a") as file:
        file.write("more")
    shutil.copyfile(root / "log", root / "copy")
    shutil.rmtree(root / "a")

if __name__ == "__main__":
    for at in range(int(sys.argv[2])):
        root = Path(sys.argv[1]) / str(at)
        root.mkdir()
        if os.fork() == 0:
            with recording(root, killed(at)):
                work(root)
            os._exit(0)
        os.wait()
"""


def work(root):
    found: dict = {"__name__": "work"}
    exec(WORK, found)
    found["work"](root)


def files(disk):
    return {path: None if file == FOLDER else disk.contents[file] for path, file in disk.entries.items()}


def test_a_process_that_is_killed_leaves_what_the_journal_says(tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    with recording(whole) as journal:
        work(whole)
    assert journal.complete() == []
    assert {op.kind for op in journal.ops} == {
        "mkdir", "create", "write", "truncate", "rename", "sync", "unlink", "rmdir",
    }  # fmt: skip
    count = len(journal.ops) + 1
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root}"}
    subprocess.run([sys.executable, "-c", WORK, tmp_path, str(count)], check=True, env=environment)
    for at in range(count):
        assert files(read_disk(tmp_path / str(at))) == files(after_kill(journal.start, journal.ops[:at])), at


OPS = [Op("create", "x", 1), Op("write", "x", 1, 0, b"abcd"), Op("sync", "x", 1), Op("write", "x", 1, 4, b"efgh")]


@pytest.mark.parametrize(
    ("ops", "kept", "left"),
    [
        (OPS, "nothing", {}),  # the folder was not flushed
        (OPS, "names", {"x": b"abcd"}),
        ([*OPS, Op("sync", "", FOLDER)], "nothing", {"x": b"abcd"}),
        ([*OPS, Op("sync", "x", 1), Op("sync", "", FOLDER)], "nothing", {"x": b"abcdefgh"}),
        ([*OPS, Op("sync", "", FOLDER), Op("rename", "x", to="y")], "nothing", {"x": b"abcd"}),
        ([*OPS, Op("sync", "", FOLDER), Op("rename", "x", to="y")], "names", {"y": b"abcd"}),
        (OPS[:2], "names", {"x": b""}),
    ],
)
def test_a_power_cut_takes_what_was_not_flushed(ops, kept, left):
    assert files(after_power_loss(Disk(), ops, kept, random.Random(0))) == left


def test_what_a_power_cut_leaves_in_part_is_a_part():
    for seed in range(100):
        found = files(after_power_loss(Disk(), OPS, "some", random.Random(seed))).get("x", b"abcd")
        assert found.startswith(b"abcd")
        assert found[4:].strip(b"\0") == b"efgh"[: len(found[4:].strip(b"\0"))]
