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


def curves(
    path: Path, points: int = 600, axis: str = "update", low: float | None = None, high: float | None = None,
    per_policy: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """Curves of a log as plain data, at most `points` buckets; low, high: range of `axis` to look into."""
    start = lines.offset_of(path, axis, low) if low is not None else 0
    end = lines.offset_of(path, axis, math.nextafter(high, math.inf)) if high is not None else None
    found = lines.read(path, start, end, points)
    rows = [row for group in found.groups for row in group]
    if found.sampled:
        edges = np.cumsum([0, *(len(group) for group in found.groups)])
    else:
        edges = np.linspace(0, len(rows), min(points, len(rows)) + 1).astype(int)
    return {"end": found.end, "damaged": found.damaged, "sampled": found.sampled, **reduced(rows, edges, per_policy)}


def reduced(rows: Sequence[dict[str, Any]], edges: NDArray | None = None, per_policy: bool = True) -> dict[str, Any]:
    """Means of rows over buckets [edges[i], edges[i + 1]); every row is a bucket of its own without edges."""
    edges = np.arange(len(rows) + 1) if edges is None else edges
    starts = edges[:-1].astype(int)
    names = dict.fromkeys(name for row in (*rows[:1], *rows[-1:]) for name in row if name not in _NOT_CURVES)
    axes = {name: _plain(_means(_column(rows, name), starts))[0] for name in AXES if rows and name in rows[-1]}
    metrics = {name: found for name in names if (found := _metric(rows, name, starts, per_policy)) is not None}
    return {"rows": len(rows), "axes": axes, "metrics": metrics}


def _metric(rows: Sequence[dict[str, Any]], name: str, starts: NDArray, per_policy: bool) -> dict[str, Any] | None:
    """Mean over policies, its 95 % half-interval, minimum, maximum, and each policy if wanted and there are few."""
    column = _column(rows, name)
    if np.isnan(column).all():
        return None
    means = _means(column, starts)  # (buckets, policies)
    policies = means.shape[1]
    if policies == 1:
        return {"mean": _plain(means)[0], "policies": 1}
    known = (~np.isnan(means)).sum(axis=1)
    with np.errstate(invalid="ignore"):
        mean = np.nansum(means, axis=1) / np.where(known, known, np.nan)
        low = np.where(known, np.fmin.reduce(means, axis=1), np.nan)
        high = np.where(known, np.fmax.reduce(means, axis=1), np.nan)
    columns = _plain(np.column_stack([mean, low, high, half_intervals(means, known), means]))
    found: dict[str, Any] = dict(zip(("mean", "low", "high", "half"), columns, strict=False)) | {"policies": policies}
    steady = "members" not in rows[-1]  # of a search, columns are other trainings in every row
    return found | ({"lines": columns[4:]} if per_policy and steady and policies <= MOST_LINES else {})


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


def _plain(columns: NDArray) -> list[list[float | None]]:
    """Columns of numbers for JSON, to six digits; None for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** np.clip(5 - np.floor(np.log10(np.abs(columns))), 0, 22)
        rounded = (np.round(columns * scale) / scale).T
    if not np.isnan(rounded).any():
        return rounded.tolist()
    return [[None if x != x else x for x in column] for column in rounded.tolist()]
