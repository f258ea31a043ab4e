"""The conclusion of a search: findings and facts about the run, as text and as plain data for summary.json."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cavalcade.config.io import as_dict
from cavalcade.core.errors import RunError
from cavalcade.core.files import plain_json, read_text
from cavalcade.core.statistics import half_interval
from cavalcade.runs.files import SUMMARY
from cavalcade.search.analysis import Findings, findings
from cavalcade.search.members import SEARCHING, Result
from cavalcade.search.run import Search
from cavalcade.search.summary_text import summary
from cavalcade.search.verdict import Verdict
from cavalcade.workflow.orders import Order, Subtasks


@dataclass(frozen=True)
class Conclusion:
    """The result of a finished search."""

    findings: Findings
    text: str  # to print
    plain: dict[str, Any]  # contents of summary.json


def conclude(search: Search) -> Conclusion:
    """Analyses a finished search."""
    found = findings(search.config, search.subtasks, search.orders, search.results, search.belief())
    trained = {r.member.order for r in search.results if r.member.purpose == SEARCHING and r.member.order >= 0}
    facts = {
        "orders_trained": len(trained),
        "trainings": len(search.results),
        "episodes": search.used,
        "steps": search.steps,
        "seconds": search.seconds,
        "steps_per_second": search.steps / search.seconds,
        "scoring_share": search.scoring_seconds / search.seconds,
    }
    plain = {
        "config": as_dict(search.config),
        **facts,
        **plain_findings(found, search.subtasks, search.orders, search.results),
    }
    text = (
        f"{summary(found, search.subtasks, search.orders)}\n\n"
        f"{facts['orders_trained']} orders in {facts['trainings']} trainings, {search.used:,.0f} episodes of search, "
        f"{search.steps:,} steps in {search.seconds:.1f} s: {facts['steps_per_second']:,.0f} steps/s; "
        f"scoring took {facts['scoring_share']:.1%}"
    )
    return Conclusion(found, text, json.loads(json.dumps(plain)))


def plain_findings(
    found: Findings, subtasks: Subtasks, orders: Sequence[Order], results: Sequence[Result]
) -> dict[str, Any]:
    """Findings as plain data, as in summary.json."""

    def text(order: int) -> str:
        return subtasks.text(orders[order])

    return {
        "winner": text(found.best) if found.winner else None,
        "best": text(found.best) if found.best >= 0 else None,
        "headline": found.headline,
        "answer": found.answer,
        "verdict": _plain_verdict(found.verdict) if found.verdict else None,
        "notes": found.notes,
        "not_followed": [text(order) for order in found.check.unfollowed],
        "classes": {text(order): text(found.check.classes[order]) for order in found.check.trials},
        "ranking": [{**_finite(r._asdict()), "order": text(r.order)} for r in found.ranking],
        "explained": _finite(found.explained._asdict()) if found.explained else None,
        "effects": [e._asdict() for e in found.effects],
        "groups": found.groups,
        "results": [
            {**_finite(asdict(r)), "order": text(r.member.order) if r.member.order >= 0 else None} for r in results
        ],
    }


def _plain_verdict(v: Verdict) -> dict[str, Any]:
    d = v.extremes.difference if v.extremes else None
    numbers = {"answer": v.answer, "p": v.p, "level": v.alpha, "margin": v.margin, "needed": v.needed}
    return _finite(numbers | ({"difference": d.estimate, "low": d.low, "high": d.high} if d else {}))


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Plain data with NaN and infinity as None, which JSON cannot represent."""
    return {
        name: _finite(x) if isinstance(x, dict) else None if isinstance(x, float) and not math.isfinite(x) else x
        for name, x in values.items()
    }


def over_seeds(path: Path, seeds: list[int]) -> str:
    """Summary of repeated searches as text."""
    lines = [f"\nover {len(seeds)} searches:"]
    rows = []
    for seed in seeds:
        try:
            rows.append(plain_json(read_text(path / f"seed-{seed}" / SUMMARY)))
        except (OSError, ValueError) as error:
            raise RunError(f"{path / f'seed-{seed}' / SUMMARY} cannot be read ({type(error).__name__})") from None
    for seed, row in zip(seeds, rows, strict=True):
        mean = np.mean(row["groups"]["best order"]) if row["groups"]["best order"] else math.nan
        said = row["verdict"]["answer"] if row["verdict"] else "cannot tell"
        lines.append(f"  seed {seed}: {said}; best {row['best']}, confirmed {mean:.2f}")
    for name in rows[0]["groups"]:
        means = [float(np.mean(row["groups"][name])) for row in rows if row["groups"].get(name)]
        if len(means) > 1:
            lines.append(f"  {name:<14}{np.mean(means):>9.2f} ± {half_interval(means):.2f} (95 %)")
    return "\n".join(lines)
