"""Reports of training runs: numbers that can be trusted, axes that can be read."""

import json
import warnings

import numpy as np
import pytest
import yaml

from cavalcade.config import PPOConfig
from cavalcade.config.io import as_dict
from cavalcade.envs.cage2.changes import Scenario
from cavalcade.report.curves import read_curve
from cavalcade.report.training import curve_figure, training_report
from cavalcade.runs.heldout import Heldout, heldout_of
from cavalcade.targets.base import Score
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.gym import GymConfig


@pytest.fixture
def write(tmp_path):
    def made(name, returns, config=None):
        path = tmp_path / name
        path.mkdir()
        (path / "config.yaml").write_text(yaml.safe_dump(as_dict(config or Cage2Config())))
        rows = [{"return": r, "episodes": 20 * (i + 1), "seconds": i} for i, r in enumerate(returns)]
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return made


def test_a_run_in_whose_last_updates_no_episode_ended(write):
    """Long episodes: a solved CartPole, MettaGrid."""
    curve = read_curve(write("solved", [[20.0], [300.0], [500.0], *[[None]] * 97]))
    np.testing.assert_array_equal(curve.final, [500.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = training_report([curve])
    assert "nan" not in page.lower()
    assert "<td>500.00</td><td>500.00</td><td>500.00</td>" in page


def test_a_policy_without_any_episode_does_not_count(write):
    curve = read_curve(write("one", [[1.0, None], [3.0, None]]))
    np.testing.assert_array_equal(curve.final, [3.0, np.nan])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "<td>3.00</td><td>3.00</td><td>3.00</td>" in training_report([curve])


def test_policies_whose_episodes_end_in_turn(write):
    curve = read_curve(write("turns", [[1.0, None], [None, 3.0], [1.0, None], [None, 3.0]]))
    assert curve_figure([curve]).axes[0].lines[0].get_ydata().tolist() == [2.0, 2.0]


def test_a_changed_game_is_marked(write):
    changed = Cage2Config(scenario=Scenario(detection=0.5))
    page = training_report([read_curve(write("own", [[1.0]])), read_curve(write("easy", [[9.0]], changed))])
    assert page.count("not the challenge") == 1
    assert "easy: " in page


def test_axes_are_linear_with_readable_ticks(write):
    """CAGE-2: from −900 to −17, mostly near −17."""
    returns = [[-900.0 + 880 * min(1, i / 20) + np.sin(i)] for i in range(400)]
    axes = curve_figure([read_curve(write("run", returns))]).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
    low, high = axes.get_ylim()
    assert -30 < low < high < -10
    shown = [tick.get_text() for tick in axes.get_yticklabels()]
    inside = [t for t in axes.get_yticks() if low <= t <= high]
    assert len(inside) >= 4
    assert not any("10^" in text or ("mathdefault" in text and "times" in text) for text in shown)


def test_a_run_of_constant_returns_can_be_drawn(write):
    low, high = curve_figure([read_curve(write("run", [[500.0]] * 9))]).axes[0].get_ylim()
    assert low < 500 < high


def test_settings_that_differ_are_compared(write):
    one = write("one", [[1.0]], Cage2Config(ppo=PPOConfig(learning_rate=1e-3)))
    other = write("other", [[2.0]], Cage2Config(episodes=5000, ppo=PPOConfig(hidden=(8, 8))))
    page = training_report([read_curve(one), read_curve(other)])
    assert "<tr><th>setting</th><th>one</th><th>other</th></tr>" in page
    assert "<td>ppo.learning_rate</td><td>0.001</td><td>0.002</td>" in page
    assert "<td>ppo.hidden</td><td>64, 64</td><td>8, 8</td>" in page
    assert "<td>episodes</td><td>100000</td><td>5000</td>" in page
    assert "ppo.gamma" not in page
    assert "Settings" not in training_report([read_curve(one)])
    gym = write("gym", [[2.0]], GymConfig())
    assert "<td>task.red</td><td>bline</td><td>–</td>" in training_report([read_curve(one), read_curve(gym)])


def test_held_out_scores_have_intervals(write):
    curve = read_curve(write("run", [[1.0]]))
    scores = (("bline seed 0", -17.25, 0.123, 1000), ("bline", -261.33, 404.98, 2), ("reward", 0.00657, 0.00108, 16))
    found = Heldout(40, "policy 1 of 2, the best in validation", tuple(Score(*score) for score in scores))
    page = training_report([curve], [found])
    assert "<td>bline seed 0</td><td>-17.25 ± 0.12</td><td>1,000</td>" in page
    assert "<td>-261 ± 405</td>" in page
    assert "<td>0.0066 ± 0.0011</td>" in page
    assert "run: evaluate, export and play use policy 1 of 2, the best in validation." in page
    assert "run: no checkpoint yet." in training_report([curve], [None])
    assert heldout_of(write("empty", [[1.0]]), lambda: pytest.fail("loaded")) is None
