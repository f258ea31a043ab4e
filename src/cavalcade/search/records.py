"""What a search writes: a row per decision in search.csv, a row per update in metrics.jsonl."""

import json
import math
from collections.abc import Sequence

from cavalcade.search.members import Result
from cavalcade.search.pool import Slot
from cavalcade.workflow.orders import Order, Subtasks

COLUMNS = (
    "number", "purpose", "kind", "order", "seed", "start", "rung", "posterior_mean", "posterior_sd", "ucb", "score",
    "standard_error", "heldout", "tail", "compliance", "chance", "counted", "training_task", "training_bonus",
    "training_total", "training_compliance", "passed", "stop", "updates", "episodes", "steps", "used_episodes",
    "seconds",
)  # fmt: skip


def csv_row(r: Result, subtasks: Subtasks, orders: Sequence[Order]) -> str:
    """A decision and what came of it."""
    m = r.member
    order = subtasks.text(orders[m.order]) if m.order >= 0 else "any"
    numbers = (m.mean, m.deviation, m.bound, r.score, r.error, r.heldout, r.tail, r.compliance, r.chance, r.counted)
    training = (r.task, r.bonus, r.total, r.training_compliance)
    done = (str(r.updates), f"{r.episodes:g}", str(r.steps), f"{r.used:.10g}", f"{r.seconds:.2f}")
    parts = [
        str(m.number), m.purpose, m.kind, order, str(m.seed), m.start, str(m.rung),
        *(_number(x) for x in (*numbers, *training)),
        str(int(r.passed)), r.stop, *done,
    ]  # fmt: skip
    return ",".join(parts)


def metrics_row(update: int, steps: int, slots: Sequence[Slot], seconds: float) -> str:
    """What every member in training got in this update: the task, the alignment bonus and the total apart."""
    row: dict[str, object] = {"update": update, "steps": steps, "members": [slot.member.number for slot in slots]}
    for name in ("task", "bonus", "total", "compliance"):
        values = [slot.latest.get(name, math.nan) for slot in slots]
        row[name] = [None if math.isnan(x) else round(x, 4) for x in values]
    return json.dumps(row | {"seconds": round(seconds, 3)})


def _number(x: float) -> str:
    return "" if math.isnan(x) else f"{x:.6g}"
