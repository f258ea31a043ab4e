"""Records that parallel loops take by address."""

import sys
from typing import NamedTuple

import numba
import numpy as np

from cavalcade.core.jit import kernel, routine
from cavalcade.core.shared import address, record_at


class Pair(NamedTuple):
    numbers: np.ndarray
    sums: np.ndarray


@kernel(parallel=True, numerics=True)
def add_rows(pair, factor):
    given = address((pair, factor))
    for row in numba.prange(pair.sums.size):
        _add_row(given, row)


@routine
def _add_row(given, row):
    pair, factor = record_at(given)
    numbers = pair.numbers[row]
    for i in range(numbers.size):
        pair.sums[row] += factor * numbers[i]


def test_a_parallel_loop_works_on_the_arrays_of_its_caller():
    pair = Pair(np.arange(60.0).reshape(20, 3), np.ones(20))
    before = [sys.getrefcount(array) for array in pair]
    for _ in range(3):
        add_rows(pair, 2.0)
    np.testing.assert_array_equal(pair.sums, 1 + 6 * pair.numbers.sum(1))
    assert [sys.getrefcount(array) for array in pair] == before
