"""The soak compares speeds of like with like."""

import pytest
from benchmarks.faults.soak import speed_at_the_end


def test_a_machine_that_becomes_slower_is_no_fault():
    assert speed_at_the_end([(1.0, 1.0), (1.2, 1.2)], [(2.0, 2.0), (3.0, 3.0)]) == 1.0


def test_a_process_that_becomes_slower_is():
    assert speed_at_the_end([(1.0, 1.0)], [(2.5, 2.0), (2.5, 2.0), (9.0, 2.0)]) == pytest.approx(0.8)
