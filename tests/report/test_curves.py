import json

import numpy as np
import pytest
import yaml

from cavalcade.config.io import as_dict
from cavalcade.core.errors import RunError
from cavalcade.report.curves import read_curve, smooth
from cavalcade.targets.cage2.config import Cage2Config


@pytest.fixture
def run(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(as_dict(Cage2Config())))

    def write(returns):
        rows = [{"return": r, "episodes": 20 * (i + 1), "seconds": i} for i, r in enumerate(returns)]
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path

    return write


def test_a_curve_has_a_line_per_policy_and_gaps_where_no_episode_ended(run):
    curve = read_curve(run([[None, None], [-5.0, -7.0], [-3.0, None], [-1.0, -2.0]]))
    np.testing.assert_array_equal(curve.episodes, [10, 20, 30, 40])
    np.testing.assert_array_equal(
        np.isnan(curve.returns), [[True, True], [False, False], [False, True], [False, False]]
    )


def test_smoothing_averages_equal_parts_and_leaves_out_parts_without_episodes(run):
    curve = read_curve(run([[None], [-4.0], [-2.0], [None], [None], [None]]))
    episodes, returns = smooth(curve, points=3)
    np.testing.assert_allclose(episodes, [30, 70])
    np.testing.assert_allclose(returns, [[-4.0], [-2.0]])


def test_a_run_without_an_episode_cannot_be_drawn(run):
    with pytest.raises(RunError, match="no episode has ended yet"):
        read_curve(run([[None]]))
    with pytest.raises(RunError, match="has no updates yet"):
        read_curve(run([]))


def test_a_damaged_log_is_named_and_a_last_line_that_is_being_written_is_left_out(run):
    path = run([[-4.0], [-2.0]])
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"return": [')
    assert len(read_curve(path).returns) == 2
    with (path / "metrics.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl cannot be read"):
        read_curve(path)
