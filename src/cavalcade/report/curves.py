"""Learning curves: returns of training episodes over the course of runs."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.config.io import flat
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.runs.directory import open_run
from cavalcade.runs.files import METRICS
from cavalcade.runs.table import metrics_rows
from cavalcade.targets import target_named

_TAIL = 0.05  # last share of a run that its final return is averaged over


@dataclass(frozen=True)
class Curve:
    """Learning curve of a run, one line per policy."""

    name: str
    episodes: NDArray  # (U,): episodes per policy so far
    returns: NDArray  # (U, P): mean return of the episodes of an update, NaN where none ended
    seconds: NDArray  # (U,)
    settings: dict[str, Any]  # by dotted name
    remarks: tuple[str, ...] = ()  # see `Target.remarks`

    def only(self, policy: int) -> "Curve":
        """The curve of one policy."""
        count = self.returns.shape[1]
        if not 0 <= policy < count:
            raise ConfigError(f"member is {policy}; {self.name} has {count}, numbered from 0")
        return replace(self, name=f"{self.name}, policy {policy}", returns=self.returns[:, policy : policy + 1])

    @property
    def final(self) -> NDArray:
        """Mean return at the end of the run, (P,); NaN for a policy without an episode.

        Over the last 5 % of updates; if no episode ended in them, over the last update in which one did.
        """
        share = max(1, int(_TAIL * len(self.returns)))
        return np.array([_end(column, share) for column in self.returns.T])


def _end(returns: NDArray, share: int) -> float:
    known = ~np.isnan(returns)
    last = returns[-share:][known[-share:]]
    return float(last.mean()) if len(last) else float(returns[known][-1]) if known.any() else float("nan")


def read_curve(path: Path) -> Curve:
    """Reads the learning curve of a run so far."""
    run = open_run(path)
    file = run.path / METRICS
    try:
        rows = metrics_rows(file) if file.exists() else []
        if not rows:
            raise RunError(f"{run.path} has no updates yet")
        if all(x is None for row in rows for x in row["return"]):
            raise RunError(f"{run.path}: no episode has ended yet; continue training before drawing it")
        policies = len(rows[0]["return"])
        returns = np.array([[np.nan if x is None else x for x in row["return"]] for row in rows], np.float64)
        episodes = np.array([row["episodes"] for row in rows], np.float64) / policies
        seconds = np.array([row["seconds"] for row in rows], np.float64)
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({type(error).__name__})") from None
    config = run.config()
    remarks = tuple(target_named(config.target).remarks(config))
    return Curve(run.path.name, episodes, returns, seconds, flat(config), remarks)


def smooth(curve: Curve, points: int = 200) -> tuple[NDArray, NDArray]:
    """Episodes (points,) and returns (points, P), averaged over equal parts of the run; of policies with episodes."""
    known = curve.returns[:, ~np.isnan(curve.returns).all(axis=0)]
    edges = np.linspace(0, len(curve.episodes), min(points, len(curve.episodes)) + 1).astype(int)
    spans = [slice(a, b) for a, b in pairwise(edges) if b > a]
    kept = [s for s in spans if not np.isnan(known[s]).all(axis=0).any()]
    if not kept:  # no part has episodes of all policies; the whole run does
        return smooth(curve, min(points, len(curve.episodes)) // 2)
    returns = [np.nanmean(known[s], axis=0) for s in kept]
    return np.array([curve.episodes[s].mean() for s in kept]), np.array(returns)
