"""Broken files: each file of a run, a search, a preset, a policy and a trace, through the verbs that read it."""

import contextlib
import hashlib
import random
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.commands import CAGE2, METTAGRID, SEARCH, run, status_of
from benchmarks.faults.crashes import limited
from benchmarks.faults.mutations import mutations
from benchmarks.faults.table import Tally

import cavalcade

SECONDS = 10  # a hang
_STATUS = Path("/proc/self/status")
TRACES = Path(__file__).parents[2] / "tests" / "data" / "cage2"
PACKAGE = Path(cavalcade.__file__).parent


class BeganError(Exception):
    """A run would begin now: what comes before has accepted the files and options."""


@dataclass(frozen=True)
class Kind:
    """Files to break below a folder, and commands that read them; FOLDER and FILE stand for the paths."""

    name: str
    make: Callable[[Path], None]
    files: str  # pattern
    readers: tuple[tuple[str, ...], ...]
    other: Callable[[Path], None] | None = None  # makes other files of the same names


def _run(folder: Path, *more: str) -> None:
    run([*CAGE2, *more, "--run", str(folder / "run")])
    run(["evaluate", str(folder / "run"), "--episodes", "20", "--cells", "bline-30"])


def _recurrent_run(folder: Path) -> None:
    _run(folder, "--memory", "lstm", "--seed", "1")


def _search(folder: Path, *more: str) -> None:
    run([*SEARCH, *more, "--run", str(folder / "run")])


def _other_search(folder: Path) -> None:
    _search(folder, "--hidden", "4", "--seed", "1")


def _mettagrid(folder: Path, *more: str) -> None:
    run([*METTAGRID, *more, "--run", str(folder / "run")])


def _other_mettagrid(folder: Path) -> None:
    _mettagrid(folder, "--core", "gru")


def _policy(folder: Path) -> None:
    run([*CAGE2, "--run", str(folder.parent / "source")])
    run(["export", str(folder.parent / "source"), "--file", str(folder / "a.safetensors")])


def _recipe(folder: Path) -> None:
    run([*CAGE2, "--run", str(folder.parent / "source")])
    shutil.copy(folder.parent / "source" / "config.yaml", folder / "recipe.yaml")


def _model(folder: Path) -> None:
    shutil.copy(PACKAGE / "models" / "cage2-head.safetensors", folder / "model.safetensors")


def _presets(folder: Path) -> None:
    for path in (PACKAGE / "config" / "presets" / "recipes").glob("cage2*.yaml"):
        shutil.copy(path, folder / path.name)


def _trace(folder: Path) -> None:
    _smallest(TRACES, folder)


def _mettagrid_trace(folder: Path) -> None:
    _smallest(PACKAGE / "envs" / "mettagrid" / "recorded", folder)


def _smallest(traces: Path, folder: Path) -> None:
    smallest = min(traces.glob("*.npz"), key=lambda path: path.stat().st_size)
    shutil.copy(smallest, folder / "trace.npz")


EVALUATE = ("--episodes", "20", "--cells", "bline-30")
KINDS = (
    Kind("run", _run, "run/**/*", (
        ("train", "--resume", "FOLDER/run", "--quiet"), ("evaluate", "FOLDER/run", *EVALUATE),
        ("report", "FOLDER/run", "--no-heldout", "--out", "FOLDER/report.html"),
        ("export", "FOLDER/run", "--file", "FOLDER/out.safetensors"), ("watch",),
    ), _recurrent_run),
    Kind("search", _search, "run/**/*", (
        ("search", "--resume", "FOLDER/run", "--quiet"), ("search", "audit", "FOLDER/run"), ("watch",),
        ("report", "FOLDER/run", "--out", "FOLDER/report.html"),
    ), _other_search),
    Kind("MettaGrid run", _mettagrid, "run/**/*", (
        ("train", "--resume", "FOLDER/run", "--quiet"), ("evaluate", "FOLDER/run", "--arenas", "2"), ("watch",),
    ), _other_mettagrid),
    Kind("policy file", _policy, "*.safetensors", (
        ("evaluate", "FILE", *EVALUATE), ("export", "FILE", "--agent", "FOLDER/agent.py"),
    )),
    Kind("recipe", _recipe, "*.yaml", (("begin", "train", "cage2", "--recipe", "FILE", "--quiet"),)),
    Kind("model", _model, "*.safetensors", (("evaluate", "FILE", *EVALUATE),)),
    Kind("presets", _presets, "*.yaml", (("begin", "train", "cage2", "--recipe", "FILE", "--quiet"),)),
    Kind("trace", _trace, "*.npz", (("verify", "FILE"),)),
    Kind("MettaGrid trace", _mettagrid_trace, "*.npz", (("verify", "mettagrid", "FILE"),)),
)  # fmt: skip


@contextlib.contextmanager
def not_begun() -> Iterator[None]:
    """Trainings and searches end where they would begin: options and files have been checked by then."""
    from cavalcade.cli import search, train

    def began(*_args: object, **_options: object) -> None:
        raise BeganError

    kept = train.run_training, search._search
    train.run_training = search._search = began
    try:
        yield
    finally:
        train.run_training, search._search = kept


def read_by(command: tuple[str, ...], folder: Path, file: Path) -> tuple[int, str]:
    """Exit status of a reader, and its message."""
    args = [arg.replace("FOLDER", str(folder)).replace("FILE", str(file)) for arg in command]
    if args[0] == "watch":
        _watched(folder)
        return 0, ""
    if args[0] == "begin":
        with not_begun(), contextlib.suppress(BeganError):
            return status_of(args[1:])
        return 0, ""
    return status_of(args)


def _watched(folder: Path) -> None:
    """All that the server would read for its pages of a run."""
    from cavalcade.watch.details import details
    from cavalcade.watch.metrics import curves
    from cavalcade.watch.runs import Listing
    from cavalcade.watch.searches import overview
    from cavalcade.watch.security import is_file

    for path in Listing(folder).paths():
        Listing(folder).summary(path)
        details(path)
        overview(path)
        if is_file(path / "metrics.jsonl"):
            curves(path / "metrics.jsonl")


def judged(command: tuple[str, ...], folder: Path, file: Path, room: float) -> str:
    """Reads a broken file: empty if it was accepted or refused in one line, else what is wrong."""
    before = {path: _stamp(path) for path in folder.rglob("*") if path != file}
    _forget_peak()
    began, used = time.monotonic(), peak_mb()
    try:
        with limited(SECONDS):
            status, errors = read_by(command, folder, file)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"traceback {type(error).__name__}: {error}"
    if status not in (0, 1, 2):
        return f"exit {status}: {errors}"
    if status == 2 and errors.strip().count("\n"):
        return f"{errors.count(chr(10))} lines: {errors}"
    if peak_mb() - used > room:
        return f"{peak_mb() - used:.0f} MB more memory, after {time.monotonic() - began:.1f} s"
    if status == 2 and (changed := [str(path) for path, stamp in before.items() if _stamp(path) != stamp]):
        return f"refused, but changed {', '.join(changed)}"
    return ""


def _stamp(path: Path) -> str:
    if path.is_symlink() or not path.is_file() or path.name == ".lock":
        return str(path.is_symlink())
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The most memory that this process has had since its peak was forgotten."""
    found = re.search(r"VmHWM:\s*(\d+)", _STATUS.read_text())
    return (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


def try_all(tally: Tally, options, share: tuple[int, int]) -> None:
    """Every fault of every file; or `count` of them, drawn by the seed."""
    rng = random.Random(options.seed)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind in KINDS:
        if options.only and kind.name not in options.only:
            continue
        print(f"broken files of a {kind.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as place:
            _of_kind(kind, Path(place), tally, rng, options.count, share)


def _of_kind(kind: Kind, place: Path, tally: Tally, rng: random.Random, count: int, share: tuple[int, int]) -> None:
    whole, other, folder = place / "whole", place / "other", place / "broken"
    whole.mkdir()
    other.mkdir()
    kind.make(whole)
    if kind.other:
        kind.other(other)
    files = sorted(
        path.relative_to(whole) for path in whole.glob(kind.files) if path.is_file() and path.name != ".lock"
    )
    tries = [
        (file, name, breaks, reader)
        for file in files
        for name, breaks in mutations(whole / file, other / file, rng, 100 if count == 0 else 20)
        for reader in kind.readers
    ]
    tries = rng.sample(tries, min(count, len(tries))) if count else tries
    shutil.copytree(whole, folder)
    for reader in kind.readers:  # warm: what is compiled and imported now is not the files' doing
        read_by(reader, folder, folder / files[0])
    room = max(200.0, peak_mb())
    for file, name, breaks, reader in tries[share[0] :: share[1]]:
        if tally.late(kind.name):
            continue
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        breaks(folder / file)
        wrong = judged(reader, folder, folder / file, room)
        tally.add(kind.name, "variants")
        if wrong:
            tally.fail(kind.name, f"{file}: {name}: {reader[0]}: {wrong}")
