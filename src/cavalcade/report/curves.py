"""Learning curves: returns of training episodes over the course of runs."""

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import RunError
from cavalcade.runs.directory import METRICS, open_run


@dataclass(frozen=True)
class Curve:
    """Learning curve of a run, one line per policy."""

    name: str
    episodes: NDArray  # (U,): episodes per policy so far
    returns: NDArray  # (U, P): mean return of the episodes of an update, NaN where none ended
    seconds: NDArray  # (U,)


def read_curve(path: Path) -> Curve:
    """Reads the learning curve of a run so far."""
    run = open_run(path)
    file = run.path / METRICS
    try:
        rows = [json.loads(text) for text in file.read_text().splitlines()] if file.exists() else []
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read ({type(error).__name__})") from None
    if not rows:
        raise RunError(f"{run.path} has no updates yet")
    if all(x is None for row in rows for x in row["return"]):
        raise RunError(f"{run.path}: no episode has ended yet; continue training before drawing it")
    policies = len(rows[0]["return"])
    returns = np.array([[np.nan if x is None else x for x in row["return"]] for row in rows], np.float64)
    episodes = np.array([row["episodes"] for row in rows]) / policies
    return Curve(run.path.name, episodes, returns, np.array([row["seconds"] for row in rows]))


def smooth(curve: Curve, points: int = 200) -> tuple[NDArray, NDArray]:
    """Episodes (points,) and returns (points, P), averaged over equal parts of the run."""
    edges = np.linspace(0, len(curve.episodes), min(points, len(curve.episodes)) + 1).astype(int)
    spans = [slice(a, b) for a, b in pairwise(edges) if b > a]
    kept = [s for s in spans if not np.isnan(curve.returns[s]).all(axis=0).any()]
    returns = [np.nanmean(curve.returns[s], axis=0) for s in kept]
    return np.array([curve.episodes[s].mean() for s in kept]), np.array(returns)
