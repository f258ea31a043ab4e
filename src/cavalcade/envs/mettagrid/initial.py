"""The order in which an agent's first inventory is listed: that of two hash tables of libstdc++.

The configured amounts pass through a table with room for exactly that many, in the order given; the agent then takes
them up in the order of that table. Up to 13 resources, the agent's own table puts each new one in front.
"""

from collections.abc import Sequence

MOST_RESOURCES = 13  # beyond, the agent's table grows and reorders what it holds
_BUCKETS = (2, 2, 2, 3, 5, 5, 7, 7, 11, 11, 11, 11, 13, 13)  # of a table with room for so many


def initial_order(resources: Sequence[int]) -> list[int]:
    """Resources in the order in which an agent shows them at first; resources: as configured."""
    buckets = _BUCKETS[len(resources)]
    passed: list[int] = []
    for resource in resources:
        same = [i for i, other in enumerate(passed) if other % buckets == resource % buckets]
        passed.insert(same[0] if same else 0, resource)
    return passed[::-1]
