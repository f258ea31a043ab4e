"""What the tables of the documents show, made from the files in docs/data/figures."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from benchmarks.faults.results import FILE as FAULTS
from benchmarks.faults.results import read, totals

from tools.doc_blocks import ROOT

DATA = ROOT / "docs" / "data" / "figures"
CARDS = ROOT / "src" / "cavalcade" / "models"
Rows = Iterator[list[str]]
_REFERENCE = re.compile(r"\{(.+?)\}")  # in a recorded table: {figure: row: column}
_NO_VERBS = ("recipes", "environments", "spaces")  # of the part options
_FAULTS = ("crashes", "chains", "files", "options", "disks", "resources")
_REDS, _HORIZONS = ("bline", "meander"), (30, 50, 100)
_REDS_SHOWN = {"bline": "B_line", "meander": "Meander"}


class Figure(NamedTuple):
    """A table, and the commands that measure it: each takes --json FILE. Without commands it shows other files."""

    table: Callable[[], Rows]
    commands: tuple[str, ...] = ()
    align: str = "lr"  # of the columns; the last one is repeated


def rows(name: str) -> list[list[str]]:
    """Head and rows of a figure, or of a table that was recorded with `python -m tools.figures record`."""
    if name in FIGURES:
        return list(FIGURES[name].table())
    return [[_REFERENCE.sub(_referred, cell) for cell in row] for row in stored(name)["table"]]


def markdown(name: str) -> str:
    """The table of a figure."""
    table, align = rows(name), FIGURES[name].align if name in FIGURES else stored(name)["align"]
    rule = ["---:" if side == "r" else "---" for side in align.ljust(len(table[0]), align[-1])]
    head, *lines = (re.sub(r"(?<=\|)  (?=\|)", " ", f"| {' | '.join(row)} |") for row in table)
    return "".join(f"{line}\n" for line in (head, f"|{'|'.join(rule)}|", *lines))


def stored(name: str) -> dict[str, Any]:
    """What the file of a figure has."""
    return json.loads((DATA / f"{name}.json").read_text())


def _referred(reference: re.Match[str]) -> str:
    """The cell that a reference names by its figure, row and column, without what follows in parentheses."""
    name, _, place = reference[1].partition(": ")
    row, _, column = place.rpartition(": ")
    head, *table = rows(name)
    (found,) = (cells for cells in table if cells[0] == row)
    return found[head.index(column)].split(" (")[0].strip("*")


# Scores.


def scores() -> Rows:
    """Policies by cell of the protocol, revision by revision."""
    yield ["policy", "revision", *(f"{red} {steps}" for red in _REDS for steps in _HORIZONS), "total"]
    for one in stored("models")["found"]:
        for revision, cells in one["revisions"].items():
            by = {(cell["red"], cell["horizon"]): cell for cell in cells}
            total = sum(cell["mean"] for cell in cells)
            error = sum(cell["interval"] ** 2 for cell in cells) ** 0.5
            played = [_number(by[red, steps]["mean"]) for red in _REDS for steps in _HORIZONS]
            yield [f"`{one['policy'].split()[0].rstrip(',')}`", revision, *played, _score(total, error)]


def cards() -> Rows:
    """Shipped models by the scores of their cards."""
    cells = [f"{red[0].upper()} {' / '.join(map(str, _HORIZONS))}" for red in _REDS]
    yield ["model", "trained on", "total, own revision", *cells, "total, other revision"]
    found = [json.loads(path.read_text()) for path in sorted(CARDS.glob("*.json"))]
    for card in sorted(found, key=lambda card: card["scores"]["cavalcade"][card["revision"]]["total"][0], reverse=True):
        own = card["scores"]["cavalcade"][card["revision"]]
        (other,) = (plays for name, plays in card["scores"]["cavalcade"].items() if name != card["revision"])
        by_red = [" / ".join(_number(own["cells"][f"{red}-{n}"][0]) for n in _HORIZONS) for red in _REDS]
        yield [
            f"`{card['name']}`", card["revision"], f"**{_score(*own['total'])}**", *by_red, _score(*other["total"]),
        ]  # fmt: skip


def payoffs() -> Rows:
    """Blues by Red."""
    cells = {(cell["blue"], cell["red"]): cell for one in stored("payoff")["found"] for cell in one["cells"]}
    reds = list(dict.fromkeys(red for _, red in cells))
    yield ["Blue", *reds]
    for blue in dict.fromkeys(blue for blue, _ in cells):
        played = [cells[blue, red] for red in reds]
        yield [f"`{blue.split()[0].rstrip(',')}`", *(_score(cell["mean"], cell["interval"]) for cell in played)]


# Speed.


def stepping() -> Rows:
    """Steps per second of the simulator by batch, Red and threads."""
    rows = {(row["red"], row["num_envs"]): row["steps_per_second"] for row in stored("sim")["found"][0]["batches"]}
    threads = sorted({n for rates in rows.values() for n in rates}, key=int)
    yield ["environments", *(f"{red}, {n} thread{'s' * (n != '1')}" for red in _REDS_SHOWN.values() for n in threads)]
    for size in dict.fromkeys(size for _, size in rows):
        rates = [rows[red, size].get(n) for red in _REDS for n in threads]
        yield [f"{size:,}", *(f"{rate / 1e6:.3g} M" if rate else "" for rate in rates)]


_TRAINERS = {
    "Stable-Baselines3": "Stable-Baselines3",
    "single-file PPO": "single-file PPO",
    "single-file PPO, torch.compile": "single-file PPO, torch.compile",
    "cavalcade, torch engine": "Cavalcade, torch engine (the reference)",
    "cavalcade, dedup off, 1 thread": "Cavalcade, `--dedup off`, 1 thread",
    "cavalcade, dedup off": "Cavalcade, `--dedup off`, all threads",
    "cavalcade, dedup on": "Cavalcade, `--dedup on`",
}


def trainers() -> Rows:
    """Steps per second of PPO, beside other trainers."""
    speed = stored("train")["found"][0]["speed"]
    yield ["trainer", "B_line steps/s", "× best peer", "Meander steps/s", "× best peer"]
    for name, title in _TRAINERS.items():
        cells = []
        for red in _REDS:
            best = max(rate for other, rate in speed[red].items() if not other.startswith("cavalcade"))
            cells += [f"{speed[red][name]:,.0f}", f"{speed[red][name] / best:.2f}×"]
        yield [title, *cells]


def optimisations() -> Rows:
    """Each optimisation of the workflow-search documents, measured."""
    yield ["optimisation", "steps/s", "measured", "claimed"]
    for step in stored("speedup")["found"][0]["steps"]:
        yield [step["name"], f"{step['rate']:,.0f}", f"{step['rate'] / step['against']:.2f}×", step["claim"]]


def memory() -> Rows:
    """What the presets of MettaGrid need, in MB."""
    yield ["", "arenas", "batch", "minibatch", "experience", "activations", "arenas and buffers"]
    for name, need in stored("memory")["found"][0]["memory"].items():
        sizes = [f"{need[part]:,}" for part in ("num_envs", "batch_size", "minibatch_size")]
        yield [name, *sizes, *(f"{need[part]:,.0f}" for part in ("experience", "activations", "arenas"))]


def arena_training() -> Rows:
    """Agent-steps per second of whole trainings on MettaGrid."""
    yield ["", "agent-steps/s"]
    for name, rate in stored("mettagrid_training")["found"][0]["training"].items():
        yield [name, f"{rate:,.0f}"]


# Orders.


def orders() -> Rows:
    """What the trainings of all orders say, game by game."""
    games = sorted(stored("orders")["found"][0]["truth"].items(), key=lambda game: game[0].split(",")[0])
    said = [one for _, one in games]
    yield [
        "",
        *(title.rsplit(", ", 1)[0].replace("bline", "B_line").replace("meander", "Meander") for title, _ in games),
    ]
    yield ["does the order matter?", *(f"**{one['answer']}**" for one in said)]
    yield ["best − worst, points (95 %)", *(_extremes(one) for one in said)]
    yield ["classes that bind differently", *(str(len(one["units"])) for one in said)]
    yield ["share of the variance between classes (of ranks)", *(_shares(one) for one in said)]
    yield ["sd within a class", *(f"{one['explained'][4]:.2f}" for one in said)]
    for kind, name in (
        ("plain PPO", "plain PPO (IQM)"),
        ("shuffled", "shuffled"),
        ("shuffled unseen", "shuffled unseen"),
    ):
        yield [name, *(_interval(one["controls"][kind]) for one in said)]
    yield ["best − plain PPO", *(_interval(one["gain"], "+") for one in said)]
    for name, place in (("best class or order", 0), ("worst", -1)):
        yield [name, *(f"{one['units'][place][0]} {_number(one['units'][place][2][0])}" for one in said)]
    for pair in said[0]["effects"]:
        yield [pair.replace("/", " before "), *(_effect(one["effects"][pair], one["binding"][pair]) for one in said)]


def _extremes(one: dict[str, Any]) -> str:
    units, each = len(one["units"]), one["compared"]
    return _interval(one["difference"]) + (f", best and worst {each} of {units}" if each > 1 else "")


def _shares(one: dict[str, Any]) -> str:
    return f"{100 * one['explained'][2]:.0f} % ({100 * one['explained_ranks'][2]:.0f} %)"


def _effect(interval: list[float], binding: float) -> str:
    text = _interval(interval, "+")
    if interval[1] > 0 or interval[2] < 0:
        text = f"**{text}**"
    return f"{text}, binds {binding:.2g}" if binding else f"{text}, never binds"


# Faults.


def faults(part: str) -> Rows:
    """What was tried of a part, by row and column; command lines of all verbs in one row."""
    found = next((tally for tally in totals(read(FAULTS)) if tally.title == part), None)
    if found is None:
        yield [part, "tried"]
        return
    verbs = [row for row in found.counts if part == "options" and row not in _NO_VERBS]
    if verbs:
        lines = {f"command lines of {len(verbs)} verbs": sum((found.counts.pop(row) for row in verbs), Counter())}
        found.counts = lines | found.counts
    yield from found.rows()


FIGURES = {
    "cards": Figure(cards, align="llrllr"),
    "models": Figure(
        scores,
        (
            *(f"evaluate model:cage2-{name}" for name in ("leaderboard", "head", "small", "order")),
            "evaluate react-restore",
            "evaluate random",
        ),
        "llr",
    ),
    "payoff": Figure(
        payoffs,
        (
            "payoff model:cage2-head model:cage2-leaderboard react-restore react "
            "--reds bline,meander,own_red:mix,own_red:random_target",
        ),
    ),
    "memory": Figure(memory, ("bench mettagrid --parts memory",)),
    "mettagrid_training": Figure(arena_training, ("bench mettagrid --parts training --seconds 8 --rounds 2",)),
    "orders": Figure(orders, ("bench orders --parts truth --episodes 20000 --table ../docs/data/orders.csv",), "l"),
    "sim": Figure(stepping, ("bench sim",), "r"),
    "train": Figure(trainers, ("bench train --parts speed",)),
    "speedup": Figure(optimisations, ("bench speedup",), "lrrl"),
    **{f"faults_{part}": Figure(partial(faults, part)) for part in _FAULTS},
}


def _number(x: float, sign: str = "") -> str:
    return f"{x:{sign}.2f}".replace("-", "−")


def _score(mean: float, interval: float) -> str:
    return f"{_number(mean)} ± {interval:.2f}"


def _interval(given: list[float], sign: str = "") -> str:
    estimate, low, high = (_number(x, sign) for x in given)
    return f"{estimate} ({low} to {high})"
