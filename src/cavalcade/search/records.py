"""Log rows of a search: one per training in search.csv, one per update in metrics.jsonl."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cavalcade.core.errors import RunError
from cavalcade.runs.files import SEARCH
from cavalcade.runs.table import csv_rows
from cavalcade.search.members import Result
from cavalcade.search.pool import Slot
from cavalcade.workflow.orders import Order, Subtasks

# Numeric columns: attributes of the member (BELIEVED) and of the result (FOUND).
BELIEVED = {"posterior_mean": "mean", "posterior_sd": "deviation", "ucb": "bound"}
FOUND = {
    "score": "score", "standard_error": "error", "heldout": "heldout", "tail": "tail", "compliance": "compliance",
    "counted": "counted", "true_compliance": "true_compliance", "true_counted": "true_counted", "choice": "choice",
    "original": "original", "chance": "chance", "binding": "binding", "training_task": "task",
    "training_bonus": "bonus", "training_total": "total", "training_compliance": "training_compliance",
    "multiplier": "multiplier",
}  # fmt: skip
COLUMNS = (
    "number", "purpose", "kind", "order", "seed", "start", "rung", *BELIEVED, *FOUND, "bound", "passed", "stop",
    "updates", "episodes", "steps", "used_episodes", "seconds",
)  # fmt: skip
_MAYBE = (*BELIEVED, *FOUND)  # empty where there is none
_NUMBERS: dict[str, Any] = dict.fromkeys(("number", "seed", "rung", "passed", "updates", "steps"), int) | dict.fromkeys(
    ("episodes", "used_episodes", "seconds", *_MAYBE), float
)
_LOGGED = ("task", "bonus", "total", "compliance", "multiplier")


def csv_row(r: Result, subtasks: Subtasks, orders: Sequence[Order]) -> str:
    """Row of a training; `bound` has a number per pair of subtasks, separated by spaces."""
    m = r.member
    order = subtasks.text(orders[m.order]) if m.order >= 0 else "any"
    numbers = [*(getattr(m, name) for name in BELIEVED.values()), *(getattr(r, name) for name in FOUND.values())]
    parts = [
        str(m.number), m.purpose, m.kind, order, str(m.seed), m.start, str(m.rung), *(_number(x) for x in numbers),
        " ".join(f"{x:g}" for x in r.bound), str(int(r.passed)), r.stop, str(r.updates), f"{r.episodes:g}",
        str(r.steps), f"{r.used:.10g}", f"{r.seconds:.2f}",
    ]  # fmt: skip
    return ",".join(parts)


def read_rows(run: Path) -> list[dict[str, str]]:
    """Rows of search.csv, the finished trainings; raises `RunError` if something else stands in place of a number."""
    rows = csv_rows(run / SEARCH)
    for row in rows:
        for name, kind in _NUMBERS.items():
            text = row.get(name)
            if text == "" and name in _MAYBE:
                continue
            try:
                kind(text)
            except (TypeError, ValueError):
                where = f"{name} of training {row.get('number')!r} is {text!r}"
                raise RunError(f"{run / SEARCH} cannot be read: {where}; restore it") from None
    return rows


def metrics_row(update: int, steps: int, slots: Sequence[Slot], seconds: float) -> str:
    """Row of an update: task reward, alignment bonus and total of every member in training."""
    row: dict[str, object] = {"update": update, "steps": steps, "members": [slot.member.number for slot in slots]}
    for name in _LOGGED:
        values = [slot.latest.get(name, math.nan) for slot in slots]
        row[name] = [None if math.isnan(x) else round(x, 4) for x in values]
    return json.dumps(row | {"seconds": round(seconds, 3)})


def _number(x: float) -> str:
    return "" if math.isnan(x) else f"{x:.6g}"
