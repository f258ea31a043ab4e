"""The findings of a search as text."""

import math

from cavalcade.search.analysis import Findings, interval_of
from cavalcade.search.verdict import bounds
from cavalcade.workflow.orders import Order, Subtasks

_SHOWN = 10


def summary(found: Findings, subtasks: Subtasks, orders: list[Order]) -> str:
    """Ranking, effects of precedences, controls, and the answer."""
    heads = (f"{'posterior':>18}", f"{'scores':>12}", f"{'compliance':>13}", f"{'binding':>9}", f"{'confirmed':>28}")
    lines = [f"{'':4}{''.join(heads)}  order"]
    shown = [*found.ranking[:_SHOWN], *(r for r in found.ranking[_SHOWN:] if not math.isnan(r.confirmed))]
    for r in shown:
        place = found.ranking.index(r) + 1
        scores = f"{r.score:.2f} ({r.trainings})" if r.trainings else ""
        confirmed = "" if math.isnan(r.confirmed) else f"{r.confirmed:.2f} ({bounds(r.low, r.high)})"
        compliance = "no decisions" if math.isnan(r.compliance) else f"{r.compliance:.2f}"
        lines.append(
            f"{place:>3} {r.mean:>9.2f} ± {1.96 * r.deviation:<6.2f}{scores:>12} {compliance:>12}{r.binding:>9.1f}"
            f" {confirmed:>27}  {subtasks.name_of(orders[r.order])}{'' if r.followed else ', not followed'}"
        )
    lines += [
        "",
        "effect of putting one before the other, all else equal (95 % intervals, corrected for the number of pairs)",
    ]
    for e in sorted(found.effects, key=lambda e: (not e.binding, -abs(e.mean))):
        mark = " *" if e.low > 0 or e.high < 0 else ""
        bound = f"binds {e.binding:.2g} times per episode" if e.binding else "never binds"
        interval = f"({bounds(e.low, e.high, sign='+')}){mark}"
        lines.append(f"  {e.a + ' before ' + e.b:<34}{e.mean:>+8.2f} {interval:<24}{bound}")
    if any(found.groups.values()):
        lines += ["", "from scratch on fresh seeds, scored on held-out games (IQM, 95 % interval, each training)"]
        for name, scores in found.groups.items():
            if scores:
                each, mean = " ".join(f"{x:.2f}" for x in scores[:_SHOWN]), interval_of(scores)
                each += f" and {len(scores) - _SHOWN} more" if len(scores) > _SHOWN else ""
                lines.append(f"  {name:<16}{mean.estimate:>9.2f} ({bounds(mean.low, mean.high)})  {each}")
    return "\n".join([*lines, "", *found.notes, found.headline, found.answer])
