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
