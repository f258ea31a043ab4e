"""Learning curves for a page: rows of metrics.jsonl averaged over buckets, per policy and over policies."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.statistics import half_intervals
from cavalcade.watch import lines

AXES = ("update", "steps", "episodes", "seconds")
MOST_LINES = 32  # policies with a line of their own
_NOT_CURVES = (*AXES, "members")


def curves(path: Path, points: int = 600, axis: str = "update", low: float | None = None, high: float | None = None):
    """Curves of a log as plain data, at most `points` buckets; low, high: range of `axis` to look into."""
    start = lines.offset_of(path, axis, low) if low is not None else 0
    end = lines.offset_of(path, axis, math.nextafter(high, math.inf)) if high is not None else None
    found = lines.read(path, start, end, points)
    rows = [row for group in found.groups for row in group]
    if found.sampled:
        edges = np.cumsum([0, *(len(group) for group in found.groups)])
    else:
        edges = np.linspace(0, len(rows), min(points, len(rows)) + 1).astype(int)
    return {"end": found.end, "damaged": found.damaged, "sampled": found.sampled, **reduced(rows, edges)}


def reduced(rows: Sequence[dict[str, Any]], edges: NDArray | None = None) -> dict[str, Any]:
    """Means of rows over buckets [edges[i], edges[i + 1]); every row is a bucket of its own without edges."""
    edges = np.arange(len(rows) + 1) if edges is None else edges
    starts = edges[:-1].astype(int)
    names = dict.fromkeys(name for row in (*rows[:1], *rows[-1:]) for name in row if name not in _NOT_CURVES)
    axes = {name: _plain(_means(_column(rows, name), starts)[:, 0]) for name in AXES if rows and name in rows[-1]}
    metrics = {name: found for name in names if (found := _metric(rows, name, starts)) is not None}
    return {"rows": len(rows), "axes": axes, "metrics": metrics}


def _metric(rows: Sequence[dict[str, Any]], name: str, starts: NDArray) -> dict[str, Any] | None:
    """Mean over policies, its 95 % half-interval, minimum, maximum, and each policy if there are few."""
    column = _column(rows, name)
    if np.isnan(column).all():
        return None
    means = _means(column, starts)  # (buckets, policies)
    known = (~np.isnan(means)).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(means, axis=1) / np.where(known, known, np.nan)
        low = np.where(known, np.nanmin(np.where(np.isnan(means), np.inf, means), axis=1), np.nan)
        high = np.where(known, np.nanmax(np.where(np.isnan(means), -np.inf, means), axis=1), np.nan)
    found: dict[str, Any] = {"mean": _plain(mean), "policies": means.shape[1]}
    if means.shape[1] > 1:
        found |= {"low": _plain(low), "high": _plain(high), "half": _plain(half_intervals(means, known))}
        steady = "members" not in rows[-1]  # of a search, columns are other trainings in every row
        if steady and means.shape[1] <= MOST_LINES:
            found["lines"] = [_plain(line) for line in means.T]
    return found


def _column(rows: Sequence[dict[str, Any]], name: str) -> NDArray:
    """Values of rows, (rows, policies), NaN where there are none or where they are not numbers."""
    values = [row.get(name) for row in rows]
    listed = [value if isinstance(value, list) else [value] for value in values]
    width = max(map(len, listed), default=1) or 1
    listed = [value if len(value) == width else value + [None] * (width - len(value)) for value in listed]
    try:
        found = np.array(listed, np.float64).reshape(len(rows), width)
    except (TypeError, ValueError):
        return np.full((len(rows), 1), np.nan)
    found[np.isinf(found)] = np.nan
    return found


def _means(column: NDArray, starts: NDArray) -> NDArray:
    known = ~np.isnan(column)
    count = np.add.reduceat(known, starts, axis=0, dtype=np.int64) if len(starts) else np.zeros((0, column.shape[1]))
    total = np.add.reduceat(np.where(known, column, 0.0), starts, axis=0) if len(starts) else count
    return np.where(count, total, np.nan) / np.where(count, count, 1)


def _plain(values: NDArray) -> list[float | None]:
    """Numbers for JSON, to six digits; None for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** np.clip(5 - np.floor(np.log10(np.abs(values))), 0, 22)
        found = (np.round(values * scale) / scale).tolist()
    return [None if x != x else x for x in found] if np.isnan(values).any() else found
