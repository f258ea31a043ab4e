"""Means of what is known of episodes, group by group."""

import warnings

import numpy as np
import pytest

from cavalcade.workflow.compliance import EPISODE_STATS, MEASURES
from cavalcade.workflow.summary import COMPLIANCE, episode_means

NAMES = (*EPISODE_STATS, "a/b")


def table(*episodes):
    """Figures of episodes, each given by name; what is not given is 0."""
    return np.array([[episode.get(name, 0.0) for name in NAMES] for episode in episodes], np.float64)


def test_compliance_weighs_decisions_not_episodes():
    episode_stats = table(
        {"compliance": 1.0, "counted": 1, "chance": 0.5, "true_compliance": 0.0, "true_counted": 1},
        {"compliance": 0.5, "counted": 9, "chance": 0.2, "true_compliance": 1.0, "true_counted": 3},
        {"choice": 0.25, "choice_counted": 4},
        {"choice": 1.0, "choice_counted": 12},
    )
    found = episode_means(episode_stats, NAMES, np.array([0, 0, 1, 1]), 2)
    assert found["compliance"][0] == pytest.approx(0.55)
    assert found["chance"][0] == pytest.approx(0.23)  # by the decisions that compliance counts
    assert found["true_compliance"][0] == pytest.approx(0.75)
    assert found["choice"][1] == pytest.approx(13 / 16)


def test_everything_else_is_a_mean_over_episodes():
    """`original` too, however many attempts an episode has."""
    episode_stats = table(
        {"task": -10, "bonus": 1, "original": 1.0, "original_counted": 1, "counted": 2, "binding": 3, "a/b": 4},
        {"task": -30, "bonus": 2, "original": 0.5, "original_counted": 9, "counted": 4, "binding": 5, "a/b": 0},
    )
    found = episode_means(episode_stats, NAMES, np.array([0, 0]), 1)
    assert tuple(found) == NAMES
    expected = {
        "task": -20,
        "bonus": 1.5,
        "original": 0.75,
        "original_counted": 5,
        "counted": 3,
        "binding": 4,
        "a/b": 2,
    }
    assert {name: found[name][0] for name in expected} == pytest.approx(expected)


def test_episodes_without_decisions_count_for_nothing():
    nothing = {"compliance": np.nan, "true_compliance": np.nan, "choice": np.nan, "chance": np.nan, "task": -5}
    some = {"compliance": 0.8, "counted": 5, "chance": 0.5, "task": -15}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = episode_means(table(nothing, some, nothing), NAMES, np.array([0, 0, 2]), 3)
    np.testing.assert_array_equal(found["task"], [-10, np.nan, -5])
    np.testing.assert_allclose(found["compliance"], [0.8, np.nan, np.nan])
    np.testing.assert_allclose(found["chance"], [0.5, np.nan, np.nan])
    assert np.isnan(found["true_compliance"]).all()
    np.testing.assert_array_equal(found["counted"], [2.5, np.nan, 0])


def test_no_episodes_at_all():
    found = episode_means(np.zeros((0, len(NAMES))), NAMES, np.zeros(0, np.int64), 2)
    assert all(np.isnan(values).all() and values.shape == (2,) for values in found.values())


def test_every_measure_has_a_figure():
    assert tuple(COMPLIANCE) == MEASURES
    assert set(COMPLIANCE.values()) <= set(EPISODE_STATS)
