"""Broken files: each file of a run, a search, a preset, a policy and a trace, through the verbs that read it."""

import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from benchmarks.faults.commands import CAGE2, COMMANDS, METTAGRID, SEARCH, UndisturbedError, run, status_of
from benchmarks.faults.copies import Copy
from benchmarks.faults.forked import forked, limited
from benchmarks.faults.mutations import REPLACED, Break, mutations
from benchmarks.faults.table import Tally

import cavalcade

SECONDS = 10  # a hang
_STATUS = Path("/proc/self/status")
TRACES = Path(__file__).parents[2] / "tests" / "data" / "cage2"
PACKAGE = Path(cavalcade.__file__).parent
PRESETS = PACKAGE / "config" / "presets"


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
    most: int = 0  # so many variants of each file, drawn by the seed; 0 for all
    hashed: tuple[str, ...] = ()  # suffixes of files that have a hash: no change of them may be accepted


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


def _models(folder: Path) -> None:
    _copies(folder, PACKAGE / "models", "*.safetensors")


def _presets(folder: Path) -> None:
    _copies(folder, PRESETS / "recipes", "cage2*.yaml")


def _mettagrid_presets(folder: Path) -> None:
    _copies(folder, PRESETS / "recipes", "mettagrid*.yaml")
    _copies(folder, PRESETS / "hardware", "*.yaml")


def _tuned(folder: Path) -> None:
    (folder / "cavalcade" / "tuned").mkdir(parents=True)
    (folder / "cavalcade" / "tuned" / "cage2.yaml").write_text("ppo:\n  num_envs: 2\n  rollout_steps: 5\n")


def _traces(folder: Path) -> None:
    _copies(folder, TRACES, "*.npz")


def _mettagrid_traces(folder: Path) -> None:
    _copies(folder, PACKAGE / "envs" / "mettagrid" / "recorded", "*.npz")


def _copies(folder: Path, source: Path, pattern: str) -> None:
    for path in source.glob(pattern):
        shutil.copy(path, folder / path.name)


def _hosted(folder: Path, *more: str) -> None:
    run([*COMMANDS["train hosted"].first(folder), *more])


def _other_hosted(folder: Path) -> None:
    _hosted(folder, "--hidden", "4", "--seed", "1")


EVALUATE = ("--episodes", "20", "--cells", "bline-30")
REPORT = ("report", "FOLDER/run", "--no-heldout", "--out", "FOLDER/report.html")
WATCH = ("watch",)  # the server reads for its pages
TENSORS = (".safetensors", ".npz")
RECIPE = ("--recipe", "FILE", "--quiet")
RESUME = ("--resume", "FOLDER/run", "--quiet")
KINDS = (
    Kind("run", _run, "run/**/*", (
        ("train", *RESUME), ("evaluate", "FOLDER/run", *EVALUATE), REPORT,
        ("export", "FOLDER/run", "--file", "FOLDER/out.safetensors"), WATCH,
    ), _recurrent_run, hashed=TENSORS),
    Kind("recurrent run", _recurrent_run, "run/**/*", (
        ("train", *RESUME), ("evaluate", "FOLDER/run", *EVALUATE),
    ), _run, hashed=TENSORS),
    Kind("hosted run", _hosted, "run/**/*", (("train", *RESUME), REPORT, WATCH), _other_hosted, hashed=TENSORS),
    Kind("search", _search, "run/**/*", (
        ("search", *RESUME), ("search", "audit", "FOLDER/run"), WATCH,
        ("report", "FOLDER/run", "--out", "FOLDER/report.html"),
    ), _other_search, hashed=TENSORS),
    Kind("MettaGrid run", _mettagrid, "run/**/*", (
        ("train", *RESUME), ("evaluate", "FOLDER/run", "--arenas", "2"), WATCH,
    ), _other_mettagrid, hashed=TENSORS),
    Kind("policy file", _policy, "*.safetensors", (
        ("evaluate", "FILE", *EVALUATE), ("export", "FILE", "--agent", "FOLDER/agent.py"),
    ), hashed=TENSORS),
    Kind("recipe", _recipe, "*.yaml", (("begin", "train", "cage2", *RECIPE),)),
    Kind("models", _models, "*.safetensors", (("evaluate", "FILE", *EVALUATE),)),
    Kind("presets", _presets, "*.yaml", (("begin", "train", "cage2", *RECIPE),)),
    Kind("MettaGrid presets", _mettagrid_presets, "*.yaml", (("begin", "train", "mettagrid", *RECIPE),)),
    Kind("tuned preset", _tuned, "cavalcade/tuned/*.yaml", (
        ("begin", "train", "cage2", "--hardware", "tuned", "--quiet"),
    )),
    Kind("traces", _traces, "*.npz", (("verify", "FILE"),), most=40),
    Kind("MettaGrid traces", _mettagrid_traces, "*.npz", (("verify", "mettagrid", "FILE"),), most=60),
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
    with mock.patch.dict(os.environ, XDG_CONFIG_HOME=str(folder)):  # where tuned presets are
        return _read_by(args, folder)


def _read_by(args: list[str], folder: Path) -> tuple[int, str]:
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


def judged(command: tuple[str, ...], copy: Copy, file: Path, hashed: bool) -> str:
    """Reads a broken file: empty if it was refused in one line, or accepted and has no hash; else what is wrong."""
    before = set(copy.changed())
    try:
        status, errors = read_by(command, copy.path, copy.path / file)
    except Exception as error:
        return f"traceback {type(error).__name__}: {error}"
    if status not in (0, 1, 2):
        return f"exit {status}: {errors}"
    if status == 0 and hashed and command != WATCH:
        return "accepted, although its hash is another"
    if status == 2 and errors.strip().count("\n"):
        return f"{errors.count(chr(10))} lines: {errors}"
    if status == 2 and (changed := [name for name in copy.changed() if name not in before and _matters(copy, name)]):
        return f"refused, but changed {', '.join(changed)}"
    return ""


def _matters(copy: Copy, name: str) -> bool:
    return Path(name).name != ".lock" and copy.differs(name)


def peak_mb() -> float:
    """The most memory that this process has had; a forked one begins with what the other has."""
    found = re.search(r"VmHWM:\s*(\d+)", _STATUS.read_text())
    return int(found[1]) / 1024 if found else 0.0


def try_all(tally: Tally, options, share: tuple[int, int]) -> None:
    """Every fault of every file; or `count` of each kind, drawn by the seed."""
    for kind in KINDS:
        if options.only and kind.name not in options.only:
            continue
        print(f"broken files: {kind.name} ...", flush=True)
        with tempfile.TemporaryDirectory() as place:
            try:
                _of_kind(kind, Path(place), tally, options.seed, options.count, share)
            except UndisturbedError as error:
                tally.fail(kind.name, f"cannot be tried here: {error}")


def _of_kind(kind: Kind, place: Path, tally: Tally, seed: int, count: int, share: tuple[int, int]) -> None:
    whole, other = place / "whole", place / "other"
    whole.mkdir()
    other.mkdir()
    kind.make(whole)
    if kind.other:
        kind.other(other)
    rng = random.Random(f"{seed} {kind.name}")
    tries = [
        (file, *found) for file in files_of(kind, whole) for found in _variants(kind, whole / file, other / file, rng)
    ]
    tries = rng.sample(tries, min(count, len(tries))) if count else tries
    copy = Copy(whole, place / "broken")
    opened = {reader: opened_by(reader, copy, files_of(kind, whole)) for reader in kind.readers}
    untouched = (kind.readers, copy, files_of(kind, whole)[0], lambda path: None, False, float("inf"))
    _, usual = forked(_tried, *untouched, seconds=SECONDS * len(kind.readers)).value
    for file, name, breaks in tries[share[0] :: share[1]]:
        if tally.late(kind.name):
            continue
        readers = [reader for reader in kind.readers if file in opened[reader] or name in REPLACED]
        hashed = file.suffix in kind.hashed and name.startswith(("bit ", "cut "))
        ended = forked(_tried, readers, copy, file, breaks, hashed, usual, seconds=SECONDS * len(kind.readers))
        copy.restore()
        tally.add(kind.name, "variants")
        tally.add(kind.name, "readings", len(readers))
        found, memory = ended.value or ([ended.wrong], 0.0)
        tally.most(kind.name, "memory, % of usual", round(100 * memory / usual))
        for wrong in found:
            tally.fail(kind.name, f"{file}: {name}: {wrong}")


def files_of(kind: Kind, folder: Path) -> list[Path]:
    """The files to break, relative to the folder."""
    found = (path for path in folder.glob(kind.files) if path.is_file() and path.name != ".lock")
    return sorted(path.relative_to(folder) for path in found)


def _variants(kind: Kind, path: Path, other: Path, rng: random.Random) -> list[tuple[str, Break]]:
    found = list(mutations(path, other, rng, 100))
    return rng.sample(found, kind.most) if 0 < kind.most < len(found) else found


def _tried(
    readers: Sequence[tuple[str, ...]], copy: Copy, file: Path, breaks: Break, hashed: bool, usual: float
) -> tuple[list[str], float]:
    """Breaks a file and has it read: what is wrong with each reader, and the most memory in MB."""
    found = []
    for reader in readers:
        copy.restore()
        breaks(copy.path / file)
        with limited(SECONDS):
            wrong = judged(reader, copy, file, hashed)
        found += [f"{' '.join(reader[:2])}: {wrong}"] if wrong else []
    return found + ([f"{peak_mb():.0f} MB of memory, usually {usual:.0f}"] if peak_mb() > 2 * usual else []), peak_mb()


def opened_by(reader: tuple[str, ...], copy: Copy, files: list[Path]) -> set[Path]:
    """Files that a reader opens while all of them are whole; compiles and imports what it needs on the way.

    It is not asked about others, except where they are missing, folders, pipes and the like. If FILE is one of its
    arguments, it opens whichever it is given.
    """
    if "FILE" in reader:
        read_by(reader, copy.path, copy.path / files[0])
        copy.restore()
        return set(files)
    seen: set[str] = set()
    _watching.append(seen)
    try:
        read_by(reader, copy.path, copy.path / files[0])
    finally:
        _watching.remove(seen)
    copy.restore()
    return {file for file in files if os.path.realpath(copy.path / file) in seen}


_watching: list[set[str]] = []


def _opening(event: str, args: tuple) -> None:
    if event == "open" and isinstance(args[0], str) and _watching:
        for seen in _watching:
            seen.add(os.path.realpath(args[0]))


sys.addaudithook(_opening)
