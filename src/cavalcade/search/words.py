"""The findings of a search as text."""

import math

import numpy as np

from cavalcade.search.analysis import Findings
from cavalcade.statistics import half_interval
from cavalcade.workflow.orders import Order, Subtasks

_SHOWN = 10


def summary(found: Findings, subtasks: Subtasks, orders: list[Order]) -> str:
    """Ranking, effects of precedences, controls, and the answer."""
    lines = [f"{'':4}{'posterior':>18}{'scores':>10}{'compliance':>12}{'confirmed':>18}  order"]
    shown = [*found.ranking[:_SHOWN], *(r for r in found.ranking[_SHOWN:] if not math.isnan(r.confirmed))]
    for r in shown:
        place = found.ranking.index(r) + 1
        scores = f"{r.score:.2f} ({r.trainings})" if r.trainings else ""
        confirmed = "" if math.isnan(r.confirmed) else f"{r.confirmed:.2f} ± {r.interval:.2f}"
        compliance = "" if math.isnan(r.compliance) else f"{r.compliance:.2f}"
        lines.append(
            f"{place:>3} {r.mean:>9.2f} ± {1.96 * r.deviation:<6.2f}{scores:>12}{compliance:>9}{confirmed:>18}  "
            f"{subtasks.name_of(orders[r.order])}"
        )
    lines.append("")
    lines.append("effect of putting one before the other (posterior mean ± 95 %)")
    for e in sorted(found.effects, key=lambda e: -abs(e.mean)):
        mark = " *" if abs(e.mean) > 1.96 * e.deviation else ""
        lines.append(f"  {e.a + ' before ' + e.b:<34}{e.mean:>8.2f} ± {1.96 * e.deviation:.2f}{mark}")
    if any(found.groups.values()):
        lines += ["", "from scratch on fresh seeds, scored on games of their own (mean ± 95 %, each training)"]
        for name, scores in found.groups.items():
            if scores:
                each = " ".join(f"{x:.2f}" for x in scores)
                lines.append(f"  {name:<14}{np.mean(scores):>9.2f} ± {half_interval(scores):<6.2f}  {each}")
    lines += ["", f"winner: {subtasks.name_of(orders[found.winner])}", found.answer]
    return "\n".join(lines)
