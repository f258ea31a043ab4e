import json

import numpy as np
import pytest

from cavalcade.core.statistics import half_interval
from cavalcade.watch.metrics import MOST_LINES, curves, reduced


def rows(values, **more):
    return [{"update": i + 1, "steps": 10 * (i + 1), "seconds": 0.1, "return": v, **more} for i, v in enumerate(values)]


def test_buckets_average_rows_per_policy_and_over_policies():
    found = reduced(rows([[1, 3], [3, 5], [None, 9]]), np.array([0, 2, 3]))
    assert found["axes"]["update"] == [1.5, 3]
    assert found["metrics"]["return"]["lines"] == [[2, None], [4, 9]]
    assert found["metrics"]["return"]["mean"] == [3, 9]
    assert (found["metrics"]["return"]["low"], found["metrics"]["return"]["high"]) == ([2, 9], [4, 9])
    assert found["metrics"]["return"]["half"] == [pytest.approx(half_interval([2, 4]), rel=1e-5), None]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None, "text", [], {"a": 1}, True])
def test_values_that_are_not_numbers_do_not_reach_the_page(bad):
    found = reduced(rows([[1.0, 2.0], bad, [3.0, 4.0]]))
    json.loads(json.dumps(found, allow_nan=False))


def test_many_policies_have_no_line_each():
    found = reduced(rows([list(range(MOST_LINES + 1))] * 3))
    assert "lines" not in found["metrics"]["return"]
    assert found["metrics"]["return"]["policies"] == MOST_LINES + 1


def test_lines_of_policies_can_be_left_out():
    found = reduced(rows([[1, 3], [3, 5]]), per_policy=False)["metrics"]["return"]
    assert found["mean"] == [2, 4]
    assert "lines" not in found


def test_trainings_of_a_search_change_places():
    found = reduced(rows([[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]], members=[0, 1]))
    assert found["metrics"]["return"]["mean"] == [1.5, 3, 5]
    assert "lines" not in found["metrics"]["return"]
    assert "members" not in found["metrics"]


def test_a_range_is_read_in_full(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows([[float(i)] for i in range(1000)])))
    assert len(curves(path, points=50)["axes"]["update"]) == 50
    found = curves(path, points=50, axis="steps", low=500, high=700)
    assert found["axes"]["steps"] == list(range(500, 701, 10))
    assert found["metrics"]["return"]["mean"] == list(range(49, 70))
    assert curves(path, low=5000)["rows"] == 0
