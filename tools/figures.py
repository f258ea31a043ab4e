"""Numbers of tables in the documents: measured into docs/data/figures, and written into the pages from there.

    python -m tools.figures measure models payoff     # runs the commands; scores do not depend on the machine
    python -m tools.figures measure sim speedup       # speeds do: on a quiet machine only
    python -m tools.figures write                     # the tables between <!-- figures: NAME --> and <!-- end -->

A table without a file in docs/data/figures stays as it is.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.doc_blocks import ROOT, pages

DATA = ROOT / "docs" / "data" / "figures"
_PLACE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
Rows = Iterator[list[str]]


class Figure(NamedTuple):
    """The commands that measure, each of which writes JSON, and the table made of what they wrote."""

    commands: list[str]
    table: Callable[[list[Any]], Rows]


def scores(found: list[Any]) -> Rows:
    """Policies by cell of the protocol, revision by revision."""
    reds, horizons = ("bline", "meander"), (30, 50, 100)
    yield ["policy", "revision", *(f"{red} {steps}" for red in reds for steps in horizons), "total"]
    for one in found:
        for revision, cells in one["revisions"].items():
            by = {(cell["red"], cell["horizon"]): cell for cell in cells}
            total = sum(cell["mean"] for cell in cells)
            error = sum(cell["interval"] ** 2 for cell in cells) ** 0.5
            played = [_number(by[red, steps]["mean"]) for red in reds for steps in horizons]
            yield [f"`{one['policy'].split()[0].rstrip(',')}`", revision, *played, _score(total, error)]


def payoffs(found: list[Any]) -> Rows:
    """Blues by Red."""
    cells = {(cell["blue"], cell["red"]): cell for one in found for cell in one["cells"]}
    reds = list(dict.fromkeys(red for _, red in cells))
    yield ["Blue", *reds]
    for blue in dict.fromkeys(blue for blue, _ in cells):
        played = [cells[blue, red] for red in reds]
        yield [f"`{blue.split()[0].rstrip(',')}`", *(_score(cell["mean"], cell["interval"]) for cell in played)]


def stepping(found: list[Any]) -> Rows:
    """Steps per second of the simulator by batch, Red and threads."""
    rows = {(row["red"], row["num_envs"]): row["steps_per_second"] for row in found[0]["batches"]}
    threads = list(next(iter(rows.values())))
    yield ["environments", *(f"{red}, {n} thread{'s' * (n != '1')}" for red in ("B_line", "Meander") for n in threads)]
    for size in dict.fromkeys(size for _, size in rows):
        rates = [rows[red, size][n] for red in ("bline", "meander") for n in threads]
        yield [f"{size:,}", *(f"{rate / 1e6:.3g} M" for rate in rates)]


def mettagrid_memory(found: list[Any]) -> Rows:
    """What the presets for MettaGrid need, in MB."""
    yield ["", "arenas", "batch", "minibatch", "experience", "activations", "arenas and buffers"]
    for name, need in found[0]["memory"].items():
        about = f"{need['agents']} agents{', hosted' * need['hosted']}"
        sizes = (need[size] for size in ("num_envs", "batch_size", "minibatch_size"))
        parts = (need[part] for part in ("experience", "activations", "arenas"))
        yield [f"{name} ({about})", *(f"{size:,}" for size in sizes), *(f"{part:,.0f}" for part in parts)]


def mettagrid_training(found: list[Any]) -> Rows:
    """Agent-steps per second of whole trainings."""
    yield ["", "agent-steps/s"]
    for name, rate in found[0]["training"].items():
        yield [name, f"{rate:,.0f}"]


FIGURES = {
    "models": Figure(
        ["evaluate model:cage2-leaderboard", "evaluate model:cage2-head", "evaluate react-restore", "evaluate random"],
        scores,
    ),
    "payoff": Figure(
        [
            "payoff model:cage2-head model:cage2-leaderboard react-restore react "
            "--reds bline,meander,own_red:mix,own_red:random_target"
        ],
        payoffs,
    ),
    "sim": Figure(["bench sim"], stepping),
    "mettagrid_memory": Figure(["bench mettagrid --parts memory"], mettagrid_memory),
    "mettagrid_training": Figure(
        ["bench mettagrid --parts training --seconds 8 --rounds 2"], mettagrid_training
    ),
}  # fmt: skip


def measure(names: list[str]) -> None:
    """Runs the commands of figures and keeps what they wrote."""
    DATA.mkdir(exist_ok=True)
    for name in names or FIGURES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "out.json"
            found = []
            for command in FIGURES[name].commands:
                print(f"$ cavalcade {command}", flush=True)
                run = [sys.executable, "-m", "cavalcade", *command.split(), "--json", str(file)]
                subprocess.run(run, check=True, cwd=ROOT / "examples", stdout=subprocess.DEVNULL)
                found.append(json.loads(file.read_text()))
        kept = {"commands": [f"cavalcade {command}" for command in FIGURES[name].commands], "found": found}
        (DATA / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def write() -> None:
    """Writes all tables whose numbers are there."""
    for page in pages():
        text = page.read_text()
        new = written(text)
        if new != text:
            page.write_text(new)
            print(page.relative_to(ROOT))


def written(text: str) -> str:
    """A page with its tables made anew."""
    return _PLACE.sub(lambda place: f"{place[1]}{_markdown(place[2]) or _between(place[0])}{place[3]}", text)


def _between(place: str) -> str:
    return place.split("\n", 1)[1].removesuffix("<!-- end -->")


def _markdown(name: str) -> str:
    """A table as Markdown; empty if it was not measured."""
    file = DATA / f"{name}.json"
    if not file.exists():
        return ""
    head, *rows = FIGURES[name].table(json.loads(file.read_text())["found"])
    rule = ["---", *("---:" for _ in head[1:])]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


def _number(x: float) -> str:
    return f"{x:.2f}".replace("-", "−")


def _score(mean: float, interval: float) -> str:
    return f"{_number(mean)} ± {interval:.2f}"


if __name__ == "__main__":
    what, *names = sys.argv[1:] or [""]
    if what not in ("measure", "write") or not set(names) <= set(FIGURES):
        sys.exit(__doc__)
    measure(names) if what == "measure" else write()
