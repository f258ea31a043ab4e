"""Confidence intervals of reported means."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def half_interval(values: Sequence[float] | NDArray) -> float:
    """Half the width of the 95 % confidence interval of a mean (Student's t); NaN for fewer than two values."""
    n = len(values)
    if n < 2:
        return math.nan
    return float(_student(n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def half_intervals(values: NDArray, known: NDArray) -> NDArray:
    """The same for every row of `values` (rows, n), of which `known` (rows,) are numbers and the others NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(values, axis=1) / known
        variance = np.nansum((values - mean[:, None]) ** 2, axis=1) / (known - 1)
        return np.where(known > 1, _student(known - 1) * np.sqrt(variance / known), np.nan)


def _student(freedom: int | NDArray) -> Any:
    """The 97.5 % quantile of Student's t."""
    from scipy import special  # takes half a second to import

    return special.stdtrit(freedom, 0.975)
