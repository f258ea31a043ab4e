"""Shipped models: each loads, plays as its card says, and stays small."""

import numpy as np
import pytest

import cavalcade
from cavalcade import models
from cavalcade.core.errors import ConfigError
from cavalcade.targets.cage2.config import Cage2Config

from ..cli.helpers import refused, run

EPISODES = 300


def test_all_are_small_and_have_a_card(capsys):
    assert {"cage2-head", "cage2-leaderboard"} <= set(models.names())
    assert sum(models.model_file(name).stat().st_size for name in models.names()) <= 3_000_000
    _, listed, _ = run(capsys, "models")
    assert [line.split()[0] for line in listed.splitlines()] == [f"model:{name}" for name in models.names()]
    for name in models.names():
        _, text, _ = run(capsys, "models", name)
        for word in ("trained", "chosen", "observes", "total", "limits", "licence"):
            assert f"\n{word}" in text or f"  {word}" in text


@pytest.mark.parametrize("name", models.names())
def test_each_plays_as_its_card_says(name):
    """On other games than those of the card; 4 standard errors of the difference."""
    card, policy = models.card(name), cavalcade.load_policy(f"model:{name}")
    assert policy.policies == 1
    config: Cage2Config = policy.config
    assert config.task.revision == card["revision"]
    assert "time" not in config.task.extras
    stated = card["scores"]["cavalcade"][card["revision"]]["cells"]
    names = [cell for cell in ("bline-50", "meander-50") if cell in stated]
    scores = cavalcade.evaluate(policy, episodes=EPISODES, cells=names, revisions=[card["revision"]], seed=77)
    assert names
    for cell in names:
        red, steps = cell.split("-")
        found = scores[f"{card['revision']} {red} {steps}"]
        mean, interval = stated[cell]
        assert abs(found.mean - mean) < 4 / 1.96 * np.hypot(found.interval, interval)


def test_unknown_names_are_refused(capsys):
    with pytest.raises(ConfigError, match="there is no model 'soup'; it must be one of cage2-head"):
        cavalcade.load_policy("model:soup")
    assert "there is no model 'soup'" in refused(capsys, "evaluate", "model:soup")
    assert "there is no model 'soup'" in refused(capsys, "play", "model:soup")
    assert "there is no model 'soup'" in refused(capsys, "models", "soup")
