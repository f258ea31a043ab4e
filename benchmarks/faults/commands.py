"""Short runs of the verbs that write, how each goes on after a crash, and what must then be equal."""

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavalcade.cli import main
from cavalcade.runs.files import CHECKPOINTS, CONFIG, METRICS

TINY = ("--hidden", "8", "--threads", "1", "--quiet")
PPO = (*TINY, "--num-envs", "2", "--rollout-steps", "5", "--checkpoint-every", "2", "--keep-checkpoints", "2")
CAGE2 = ("train", "cage2", *PPO, "--horizon", "5", "--episodes", "12", "--device", "cpu")
METTAGRID = (
    "train", "mettagrid", "--env-options", "agents=2,size=9,max_steps=10,mines=3,tokens=120", "--num-envs", "2",
    "--batch-size", "64", "--minibatch-size", "32", "--bptt-horizon", "8", "--width", "8", "--device", "cpu",
    "--threads", "1", "--steps", "512", "--checkpoint-every", "2", "--keep-checkpoints", "2", "--quiet",
)  # fmt: skip
SEARCH = (
    "search", "gridworld", *TINY, "--num-envs", "5", "--max-episodes", "2", "--total-episodes", "20", "--n-workflows",
    "2", "--device", "cpu", "--score-episodes", "4", "--confirm", "1", "--rivals", "1",
)  # fmt: skip
ORDERS = ("north_west>south_east>north_east>south_west", "south_west>north_east>south_east>north_west")
SHARDED = ("--searcher", "fixed", "--orders", ",".join(ORDERS))
CLOCKS = (
    "seconds",
    "started",
    "phases",
    "scoring_seconds",
    "scoring_share",
    "steps_per_second",
    "logs",
    "date",
    "hash",
)
_CLOCK = re.compile(
    rb'"(?:[a-z_]*seconds|started|date|steps_per_second|scoring_share|phases)": ?(?:\{[^}]*\}|[^,}\]]+)'
)
TEMPORARY = (".writing-", ".old-", ".part")


@dataclass(frozen=True)
class Command:
    """A verb: `make(folder)` prepares what it reads, `first` begins it, `again` goes on with it."""

    name: str
    first: Callable[[Path], list[str]]
    again: Callable[[Path], list[str]]
    make: Callable[[Path], None] = lambda folder: None
    place: str = "run"  # folder below which it writes
    atomic: bool = False  # its files are there whole or not at all
    exact: bool = True  # it ends bit for bit as the undisturbed; else as far as steps are counted


def status_of(args: list[str]) -> tuple[int, str]:
    """Exit status of a command in this process, and what it said on standard error."""
    said, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            main(args)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    return code, "".join(line for line in errors.getvalue().splitlines(True) if not line.endswith(" ...\n"))


class UndisturbedError(Exception):
    """A command fails without any fault: something is not installed here."""


def run(args: list[str]) -> None:
    """A command that must succeed."""
    status, errors = status_of(args)
    if status:
        raise UndisturbedError(f"{' '.join(args)}: exit {status}: {errors}")


def _written(*args: str) -> tuple[Callable[[Path], list[str]], Callable[[Path], list[str]]]:
    def command(folder: Path) -> list[str]:
        return [arg.replace("FOLDER", str(folder)) for arg in args]

    return command, command


def _resumed(
    verb: str, *first: str, needs: str = CONFIG
) -> tuple[Callable[[Path], list[str]], Callable[[Path], list[str]]]:
    """Begins a run; or resumes it once it is one, which a file or folder with something in it tells."""
    begin, _ = _written(*first, "--run", "FOLDER/run")

    def again(folder: Path) -> list[str]:
        found = folder / "run" / needs
        if any(found.glob("[0-9]*")) if found.is_dir() else found.exists():
            return [verb, "--resume", str(folder / "run"), "--quiet"]
        return begin(folder)

    return begin, again


def _trained(folder: Path) -> None:
    run([*CAGE2, "--run", str(folder / "trained")])


def _shards(folder: Path) -> None:
    for shard in ("1/2", "2/2"):
        run([*SEARCH, *SHARDED, "--shard", shard, "--run", str(folder / f"shard-{shard[0]}")])


COMMANDS = {
    command.name: command
    for command in (
        Command("train cpu", *_resumed("train", *CAGE2)),
        Command("train torch", *_resumed("train", *CAGE2, "--engine", "torch")),
        Command("train recurrent", *_resumed("train", *CAGE2, "--memory", "lstm")),
        Command(
            "train hosted",
            *_resumed(
                "train", "train", "gym:CartPole-v1", *PPO, "--steps", "60", "--minibatches", "1", "--backend", "serial"
            ),
            exact=False,
        ),
        Command("train mettagrid", *_resumed("train", *METTAGRID)),
        Command("search", *_resumed("search", *SEARCH)),
        Command(
            "merge",
            *_resumed("search", "search", "merge", "FOLDER/shard-1", "FOLDER/shard-2", "--quiet", needs=CHECKPOINTS),
            make=_shards,
        ),
        Command(
            "export", *_written("export", "FOLDER/trained", "--file", "FOLDER/run/a.safetensors"), _trained, atomic=True
        ),
        Command(
            "export agent",
            *_written("export", "FOLDER/trained", "--agent", "FOLDER/run/agent.py"),
            _trained,
            atomic=True,
        ),
        Command(
            "export onnx", *_written("export", "FOLDER/trained", "--onnx", "FOLDER/run/a.onnx"), _trained, atomic=True
        ),
        Command("report", *_written("report", "FOLDER/trained", "--out", "FOLDER/run/r.html"), _trained, atomic=True),
    )
}


def left_by(folder: Path, *, exact: bool = True) -> dict[str, bytes]:
    """All files that a command left, wall-clock times aside; temporary ones included."""
    found = {}
    if not exact:  # games begin anew: no step may be missing or counted twice
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        rows = [json.loads(row) for row in (folder / METRICS).read_text().splitlines()]
        return dict.fromkeys(names, b"") | {METRICS: str([(row["update"], row["steps"]) for row in rows]).encode()}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and path.name != ".lock":
            found[name] = _timeless(path)
    return found


def _timeless(path: Path) -> bytes:
    content = path.read_bytes()
    if path.name == "search.csv":
        return b"\n".join(row.rpartition(b",")[0] for row in content.splitlines())
    if path.suffix == ".json":
        plain = json.loads(content)
        return json.dumps(_without_clocks(plain)).encode()
    if path.name == "notes.jsonl":
        return b""  # what was said, again with every start
    if path.suffix == ".jsonl":
        return _CLOCK.sub(b"", content)
    if path.suffix == ".html":
        return content[-8:]  # pictures of seconds
    return content


def _without_clocks(plain: Any) -> Any:
    """Plain data without what depends on the time of day or on speed."""
    if isinstance(plain, dict):
        return {name: _without_clocks(value) for name, value in plain.items() if name not in CLOCKS}
    return [_without_clocks(value) for value in plain] if isinstance(plain, list) else plain


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
