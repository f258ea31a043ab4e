"""Checks of values that users give."""

import pytest

from cavalcade.core.errors import ConfigError, at_least


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "at least 1"),
        (True, "at least 1"),
        (1.5, "at least 1"),
        ("3", "at least 1"),
        (10**30, f"at most {2**63 - 1}"),
    ],
)
def test_whole_numbers(value, said):
    with pytest.raises(ConfigError, match=f"size is .*; it must be a whole number of {said}"):
        at_least("size", value, 1)


def test_a_whole_number_that_fits():
    assert at_least("size", 2**63 - 1, 1) == 2**63 - 1
