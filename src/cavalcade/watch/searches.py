"""The page of a search: trainings and decisions at once, findings so far when they are asked for.

Findings are those of `cavalcade search` itself, on the trainings that search.csv has by now. They need the Gaussian
process and thus torch, which is imported only then.
"""

import math
import time
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException

from cavalcade.runs.files import CONFIG, DECISIONS, SUMMARY
from cavalcade.watch.details import rows
from cavalcade.watch.reading import Plain, read_json, read_trainings, read_yaml

_SHARE = 100  # findings of a search that goes on are made anew after so many times the seconds that they took


def overview(path: Path) -> Plain:
    """Trainings, decisions and, of a finished search, its summary."""
    summary = read_json(path / SUMMARY)
    if isinstance(summary, dict):
        summary.pop("results", None)  # the trainings again
    return {"trainings": read_trainings(path), "decisions": rows(path / DECISIONS), "summary": summary}


class Findings:
    """Findings so far, kept until there are new trainings and some time has passed."""

    def __init__(self):
        self._kept: dict[Path, tuple[int, float, Plain]] = {}  # trainings, when they are made anew, findings

    def __call__(self, path: Path) -> Plain:
        """Ranking, posterior over all orders, effects, verdict: see `plain_findings`."""
        trainings = read_trainings(path)
        count, due, found = self._kept.get(path, (-1, 0.0, {}))
        begun = time.monotonic()
        if count != len(trainings) and begun >= due:
            found = findings_of(read_yaml(path / CONFIG) or {}, trainings)
            again = time.monotonic() + _SHARE * (time.monotonic() - begun)
            self._kept[path] = (len(trainings), again, found)
        return found


def findings_of(config: Plain, trainings: list[Plain]) -> Plain:
    """Findings on rows of search.csv; raises 404 if they do not fit the configuration."""
    from cavalcade.config.io import from_dict
    from cavalcade.core.errors import CavalcadeError
    from cavalcade.search.analysis import findings
    from cavalcade.search.conclusion import plain_findings
    from cavalcade.search.config import SearchConfig
    from cavalcade.search.decisions import belief
    from cavalcade.search.domains import subtasks_of

    try:
        settings = from_dict(SearchConfig, config)
        subtasks = subtasks_of(settings)
        orders = subtasks.orders()
        places = {subtasks.text(order): i for i, order in enumerate(orders)}
        results = [_result(row, places) for row in trainings]
        if not any(r.member.kind == "order" for r in results):
            return {}
        believed = belief(settings, orders, results)
        found = plain_findings(findings(settings, subtasks, orders, results, believed), subtasks, orders, results)
    except (CavalcadeError, KeyError, TypeError, ValueError) as error:
        raise HTTPException(404, f"the findings cannot be made: {error}") from None
    del found["results"]
    posterior = zip(places, believed.mean.tolist(), believed.deviation.tolist(), strict=True)
    return found | {
        "posterior": [{"order": text, "mean": mean, "deviation": deviation} for text, mean, deviation in posterior]
    }


def _result(row: Plain, places: dict[str, int]) -> Any:
    """A training as the search itself knows it."""
    from cavalcade.search.members import Member, Result
    from cavalcade.search.records import BELIEVED, FOUND

    def number(name: str) -> float:
        return math.nan if row[name] is None else row[name]

    believed: dict[str, Any] = {attribute: number(column) for column, attribute in BELIEVED.items()}
    member = Member(
        number=int(row["number"]), purpose=row["purpose"], kind=row["kind"], order=places.get(row["order"], -1),
        seed=int(row["seed"]), updates=int(row["updates"]), start=row["start"], rung=int(row["rung"]), **believed,
    )  # fmt: skip
    return Result(
        member=member, stop=row["stop"], updates=int(row["updates"]), episodes=row["episodes"],
        steps=int(row["steps"]), used=row["used_episodes"], seconds=row["seconds"], passed=bool(row["passed"]),
        bound=[float(x) for x in row["bound"].split()],
        **{attribute: number(column) for column, attribute in FOUND.items()},
    )  # fmt: skip
