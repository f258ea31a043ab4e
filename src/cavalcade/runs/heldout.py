"""Scores of a run on held-out episodes, kept in heldout.json: written at the end of a training, and on demand."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from cavalcade.core.errors import RunError
from cavalcade.core.files import plain_json, read_text
from cavalcade.runs.checkpoint import checkpoints
from cavalcade.runs.directory import write_whole
from cavalcade.runs.files import CHECKPOINTS, HELDOUT
from cavalcade.targets import target_named
from cavalcade.targets.base import Score, Scores


class Heldout(NamedTuple):
    """Scores of a run's policies at an update, and which of them is used by default."""

    update: int
    member: str  # "policy 3 of 4, the best in validation"; empty if there is one
    scores: tuple[Score, ...]


def score_heldout(path: Path, policy: Any) -> tuple[Scores, Heldout]:
    """Scores the newest policies of a run on held-out episodes, and keeps the result."""
    target = target_named(policy.config.target)
    found = target.heldout(policy)
    kept = Heldout(policy.update, target.member(policy).text, found.scores)
    remarks = list(target.remarks(policy.config))
    plain = kept._asdict() | {"scores": [score._asdict() for score in kept.scores], "remarks": remarks}
    with suppress(RunError):  # a directory that cannot be written: the scores are made again when they are needed
        write_whole(path / HELDOUT, json.dumps(plain, indent=1))
    return found, kept


def heldout_of(path: Path, load: Callable[[], Any]) -> Heldout | None:
    """Scores of a run's newest checkpoint, made now if they are not kept; None if it has no checkpoint."""
    found = checkpoints(path / CHECKPOINTS)
    if not found:
        return None
    kept = _kept(path)
    return kept if kept and kept.update == int(found[-1].name) else score_heldout(path, load())[1]


def _kept(path: Path) -> Heldout | None:
    try:
        plain = plain_json(read_text(path / HELDOUT))
        return Heldout(int(plain["update"]), str(plain["member"]), tuple(Score(**s) for s in plain["scores"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
