"""Bad command lines and configurations, drawn by Hypothesis; and Gymnasium environments that misbehave.

A command ends with 0 or 2 and one line, or it gets to the point where its work would begin, if that is long. Trainings
are prepared in full, with their environments and engine, and end before their first update.
"""

import contextlib
import importlib
import itertools
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from benchmarks.faults.commands import CAGE2, fresh, run, status_of
from benchmarks.faults.copies import Copy
from benchmarks.faults.files import BeganError
from benchmarks.faults.forked import HangError, forked, limited
from benchmarks.faults.misbehaving import TROUBLES
from benchmarks.faults.table import Tally
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cavalcade.cli.options import Option
from cavalcade.cli.pages import commands, stored

SECONDS = 10  # of computing, and six times as long of waiting: a hang
WARM = 10  # command lines of each verb that are tried before, in this process
BEGAN = -1
READERS = ("export", "report", "evaluate", "record")
RUN, INNER = "run", "outer/inner"  # a run, and where it is: also what a command writes two folders above is noticed
TO_THE_END = ("export", "report", "search merge", "search audit", "models", "completion")  # their work is short
_MODULES = {"verify mettagrid": "verify_mettagrid"}
LEFT_OUT = (  # options that start other programs, or need a GPU
    "watch",
    "open",
    "help",
    "cyborg",
    "cyborg_python",
    "ray_address",
    "device",
    "writers",
)
SMALL = ("--num-envs", "2", "--threads", "1", "--quiet")
TEXTS = (
    "run",
    "",
    " ",
    "x",
    "-",
    "--",
    "ä\u200b",
    "a" * 300,
    ":",
    "gym:",
    "../..",
    "/proc/self/mem",
    "null",
    "0x10",
    "$(id)",
    "%s{}",
)
NUMBERS = (
    "-1",
    "0",
    "1",
    "2",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e-320",
    "1e3",
    "1_0",
    "٣",
    "9" * 30,
    "1000000000",
    "2147483648",
    "-0.0",
    "-9223372036854775808",
)


def values(option: Option) -> st.SearchStrategy[str]:
    """Values of an option, sensible and not."""
    if option.kind == "whole":
        usual = st.integers(-2, 9).map(str)
    elif option.kind == "number":
        usual = st.one_of(st.floats(0, 1).map(str), st.floats().map(str))
    elif option.kind == "choice":
        usual = st.sampled_from(option.choices)
    else:
        usual = st.sampled_from(TEXTS)
    one = st.one_of(usual, usual, st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.text(max_size=8))
    return st.lists(one, max_size=4).map(",".join) if option.many else one


@st.composite
def lines(draw: Any, command: str) -> list[str]:
    """A command line with some of its options."""
    offered = [option for option in stored()[command].options if option.name not in LEFT_OUT]
    found = [
        word + "CartPole-v1" if word == "gym:" else word for word in command.split() if word not in ("RUN", "env:")
    ]
    for option in draw(st.lists(st.sampled_from(offered), max_size=6)) if offered else []:
        value = draw(values(option)).replace("\0", "")
        if option.positional:
            found.append(value)
        elif option.kind == "switch":
            found.append(draw(st.sampled_from([option.flag, f"--no-{option.flag[2:]}", f"{option.flag}={value}"])))
        else:
            found += draw(st.sampled_from([[option.flag, value], [f"{option.flag}={value}"], [option.flag]]))
    return found


@contextlib.contextmanager
def before_work(command: str) -> Iterator[None]:
    """Work ends where it would begin: of trainings and searches after all is prepared, else after the options."""

    def began(*_args: Any, **_options: Any) -> Any:
        raise BeganError

    with contextlib.ExitStack() as stack:
        verb = command.split()[0]
        if command in TO_THE_END:
            pass
        elif verb == "train":
            stack.enter_context(mock.patch("cavalcade.runs.training.Training.train", began))
        elif verb == "search":
            stack.enter_context(mock.patch("cavalcade.cli.search._search", began))
        else:
            name = command.replace(" ", ".") if verb == "bench" else _MODULES.get(command, verb)
            module = importlib.import_module(f"cavalcade.cli.{name}")
            for parser in ("parse", "parse_target"):
                if real := getattr(module, parser, None):
                    stack.enter_context(mock.patch.object(module, parser, _then_began(real)))
        yield


def _then_began(real: Any) -> Any:
    def parse(*args: Any, **options: Any) -> Any:
        real(*args, **options)
        raise BeganError

    return parse


def answer(args: list[str], folder: str) -> tuple[int, str]:
    """Exit status of a command line in a folder, and its message; -1 if work would begin."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        return status_of(args)
    except BeganError:
        return BEGAN, ""
    finally:
        os.chdir(here)


class Place:
    """A folder in which command lines are tried: with a run in it for those that read one, else empty."""

    def __init__(self, folder: Path, command: str):
        whole = fresh(folder / "whole")
        (whole / INNER).mkdir(parents=True)
        if command.split()[0] in READERS:
            run([*CAGE2, "--run", str(whole / INNER / RUN)])
        self.copy = Copy(whole, folder / "here")

    def warm(self, args: list[str]) -> None:
        """In this process: what is imported and compiled now, is so for all that are forked from it."""
        with limited(SECONDS), contextlib.suppress(Exception, HangError):
            answer(args, str(self.copy.path / INNER))
        self.copy.restore()

    def wrong_with(self, args: list[str]) -> str:
        """What is wrong with how a command line is answered, in a process of its own; empty if nothing is."""
        ended = forked(answer, args, str(self.copy.path / INNER), seconds=SECONDS)
        changed = [name for name in self.copy.changed() if not name.endswith(".lock")]
        self.copy.restore()
        if ended.wrong:
            return ended.wrong
        status, errors = ended.value
        if status not in (BEGAN, 0, 2):
            return f"exit {status}: {errors}"
        if status == 2 and len(errors.splitlines()) != 1:
            return f"{len(errors.splitlines())} lines: {errors}"
        if status == 2 and changed:
            return f"refused, and wrote {', '.join(changed)}"
        return ""


def try_all(tally: Tally, options: Any, share: tuple[int, int]) -> None:
    """Command lines of every verb, recipes, and environments that misbehave."""
    count = (options.count or 10_000) // share[1]
    for i, command in enumerate(commands()):
        if not options.only or command in options.only:
            command_lines(command, tally, max(1, count // len(commands())), options.seed + 1000 * share[0] + i)
    if not options.only or "recipes" in options.only:
        recipes(tally, count // 5, options.seed + 1000 * share[0])
    if (not options.only or "environments" in options.only) and share[0] == 0:
        environments(tally, at=7 + options.seed % 20)
    if not options.only or "spaces" in options.only:
        spaces(tally, count // 20, 100_000 * options.seed + 1000 * share[0])


def command_lines(command: str, tally: Tally, count: int, number: int) -> None:
    """Command lines that Hypothesis draws; those of trainings are for small ones."""
    more = SMALL if command.split()[0] == "train" else ()

    def tried(args: list[str]) -> None:
        if tally.late(command):
            return
        tally.add(command, "tried")
        if wrong := place.wrong_with([*args, *more]):
            tally.fail(command, f"{' '.join(map(repr, [*args, *more]))}: {wrong}")

    print(f"{count} command lines of {command} ...", flush=True)
    with tempfile.TemporaryDirectory() as folder, before_work(command):
        place = Place(Path(folder), command)
        _examples(lines(command), lambda args: place.warm([*args, *more]), WARM, number)
        _examples(lines(command), tried, count, number)


def _examples(strategy: Any, call: Callable[[Any], None], count: int, number: int) -> None:
    """Calls a function with so many examples of a strategy, drawn by a number."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    quiet = settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=checks
    )

    def example(drawn: Any) -> None:
        call(drawn)

    seed(number)(quiet(given(drawn=strategy)(example)))()


def recipes(tally: Tally, count: int, number: int) -> None:
    """Recipes with settings of any type in any place."""
    rng = random.Random(number)
    odd = (None, -1, 0, 1.5, "x", [], {}, [[1]], {"a": {"b": 1}}, True, float("nan"), 10**30, "2026-01-01", b"x")
    names = (
        "target",
        "seed",
        "ppo",
        "task",
        "episodes",
        "policies",
        "unknown",
        "workflow",
        "checkpoint_every",
        3,
        None,
    )
    inner = ("num_envs", "hidden", "gamma", "red", "horizon", "extras", "unknown", "schedule", 3)
    print(f"{count} recipes ...", flush=True)
    with tempfile.TemporaryDirectory() as folder, before_work("train cage2"):
        file = Path(folder) / "recipe.yaml"
        args = ["train", "cage2", "--recipe", str(file), *SMALL]
        place = Place(Path(folder) / "place", "train cage2")
        file.write_text("{}")
        place.warm(args)
        for _ in range(count):
            if tally.late("recipes"):
                continue
            plain: Any = {rng.choice(names): rng.choice(odd) for _ in range(rng.randint(0, 4))}
            for part in ("ppo", "task"):
                if rng.random() < 0.5:
                    plain[part] = {rng.choice(inner): rng.choice(odd) for _ in range(rng.randint(0, 3))}
            file.write_text(yaml.safe_dump(rng.choice((plain, plain, plain, [plain], rng.choice(odd)))))
            tally.add("recipes", "tried")
            if wrong := place.wrong_with(args):
                tally.fail("recipes", f"{file.read_text()!r}: {wrong}")


ENVIRONMENTS = "gym:benchmarks.faults.misbehaving"
_WORKERS = ["--workers", "2", "--worker-timeout", "5", "--max-restarts", "2"]
BACKENDS = (["--backend", "serial"], ["--backend", "shared", *_WORKERS])


def environments(
    tally: Tally, troubles: tuple[str, ...] = TROUBLES, backends: tuple[list[str], ...] = BACKENDS, at: int = 7
) -> None:
    """Short trainings on environments that misbehave from a step on, in their process and in workers."""
    print(f"{len(troubles)} misbehaving environments, in {len(backends)} places each ...", flush=True)
    sizes = [*CAGE2[2:-6], "--minibatches", "1", "--steps", "60"]
    _warm(sizes)
    for trouble, backend in itertools.product(troubles, backends):
        tally.add("environments", "tried")
        args = [
            "train",
            f"{ENVIRONMENTS}:Misbehaving-v0",
            *sizes,
            *backend,
            "--env-options",
            f"trouble={trouble},at={at}",
        ]
        wrong, status, errors, _ = _trained(args, 120)
        if not wrong and status not in (0, 2, *([130] if trouble == "keyboard interrupt" else [])):
            wrong = f"exit {status}: {errors}"
        elif status == 2 and "cavalcade train: " not in errors:  # the traceback of the environment may follow
            wrong = f"not explained: {errors}"
        elif status == 2 and "cannot be made" in errors:
            wrong = f"it was not even made: {errors}"
        if wrong:
            tally.fail("environments", f"{trouble} {backend[1]}: {wrong}")


def spaces(tally: Tally, count: int, first: int) -> None:
    """Short trainings on environments whose spaces are drawn: they end well, or are refused in one line."""
    print(f"{count} environments with spaces drawn by their number ...", flush=True)
    sizes = [*SMALL, "--hidden", "4", "--rollout-steps", "4", "--steps", "16", "--minibatches", "1"]
    _warm(sizes)
    for number in range(first, first + count):
        if tally.late("spaces"):
            continue
        args = ["train", f"{ENVIRONMENTS}:DrawnSpaces-v0", *sizes, "--backend", "serial"]
        wrong, status, errors, left = _trained([*args, "--env-options", f"drawn={number}"], SECONDS)
        if not wrong and (status not in (0, 2) or (status == 2 and len(errors.splitlines()) != 1)):
            wrong = f"exit {status}: {errors}"
        elif status == 2 and left:
            wrong = f"refused, and wrote a run: {errors}"
        tally.add("spaces", "tried")
        tally.add("spaces", "refused", int(status != 0))
        tally.add("spaces", "accepted", int(status == 0))
        if wrong:
            tally.fail("spaces", f"{number}: {wrong}")


def _warm(sizes: Sequence[str]) -> None:
    """A training in this process, so that all is imported."""
    with tempfile.TemporaryDirectory() as folder:
        run(["train", f"{ENVIRONMENTS}:Misbehaving-v0", *sizes, "--backend", "serial", "--run", f"{folder}/run"])


def _trained(args: list[str], seconds: int) -> tuple[str, int, str, bool]:
    """A training in a process of its own: what is wrong with that, exit status, message, whether a run is left."""
    with tempfile.TemporaryDirectory() as folder:
        ended = forked(status_of, [*args, "--run", f"{folder}/run"], seconds=seconds)
        status, errors = ended.value or (0, "")
        return ended.wrong, status, errors, os.path.exists(f"{folder}/run")
