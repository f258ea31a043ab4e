"""Confidence intervals of reported means."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special


def half_interval(values: Sequence[float] | NDArray) -> float:
    """Half the width of the 95 % confidence interval of a mean (Student's t); NaN for fewer than two values."""
    n = len(values)
    if n < 2:
        return math.nan
    return float(special.stdtrit(n - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(n))


def half_intervals(values: NDArray, known: NDArray) -> NDArray:
    """The same for every row of `values` (rows, n), of which `known` (rows,) are numbers and the others NaN."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(values, axis=1) / known
        variance = np.nansum((values - mean[:, None]) ** 2, axis=1) / (known - 1)
        return np.where(known > 1, special.stdtrit(known - 1, 0.975) * np.sqrt(variance / known), np.nan)
