"""What only Linux has is asked for before it is used: by reading the sources, and by taking it away."""

import ast
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import cavalcade
from cavalcade.cli import main
from cavalcade.core import slices
from cavalcade.core.memory import memory

SOURCES = sorted(Path(cavalcade.__file__).parent.rglob("*.py"))
# Of `os`, by the availability that Python's documents state, or absent from its builds for macOS.
LINUX_ONLY = re.compile(
    r"(eventfd|memfd|MFD_|EFD_|pidfd|timerfd|TFD_|P_PIDFD|SCHED_|splice|copy_file_range|getrandom|posix_fadvise|"
    r"posix_fallocate|POSIX_FADV|[gs]etxattr|listxattr|removexattr|O_TMPFILE|O_PATH|O_DIRECT$|O_NOATIME|O_LARGEFILE|"
    r"unshare|setns|pipe2|fdatasync|[gs]etres[ug]id|sched_(?!yield|get_priority))"
)


def linux_only(tree: ast.AST) -> set[str]:
    """Names of `os` that macOS lacks, as a module uses them."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
        if LINUX_ONLY.match(node.attr)
    }


def asked_for(name: str, source: str) -> bool:
    return f'hasattr(os, "{name}")' in source or 'sys.platform != "linux"' in source


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_linux_has_is_asked_for(path):
    source = path.read_text()
    assert not [name for name in linux_only(ast.parse(source)) if not asked_for(name, source)]


def test_the_reader_finds_what_is_not_asked_for():
    source = "import os\nx = os.eventfd(0)\ny = os.sched_yield()\nz = os.O_DIRECTORY\n"
    assert linux_only(ast.parse(source)) == {"eventfd"}
    assert not asked_for("eventfd", source)
    assert asked_for("eventfd", source + 'if hasattr(os, "eventfd"): pass\n')


@pytest.fixture
def mac(monkeypatch):
    """Python without what our modules use and macOS lacks."""
    for name in {name for path in SOURCES for name in linux_only(ast.parse(path.read_text()))}:
        monkeypatch.delattr(os, name)
    monkeypatch.setattr(slices, "sys", SimpleNamespace(platform="darwin"))


@pytest.mark.usefixtures("mac")
@pytest.mark.parametrize(
    "target",
    [["cage2", "--episodes", "20"], ["gym:CartPole-v1", "--steps", "800", "--workers", "2", "--staleness", "1"]],
)
def test_a_training_needs_nothing_of_linux(target, tmp_path):
    common = ["--num-envs", "10", "--rollout-steps", "20", "--hidden", "8", "--threads", "1"]
    with pytest.raises(SystemExit) as stop:
        main(["train", *target, *common, "--run", str(tmp_path / "run"), "--quiet"])
    assert not stop.value.code


def test_memory_is_that_of_the_machine_where_there_are_no_control_groups(tmp_path):
    found = memory(tmp_path / "no groups", tmp_path / "no file")
    assert 0 < found.available <= found.total
