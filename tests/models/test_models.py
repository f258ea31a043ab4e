"""Shipped models: each loads, plays as its card says, and stays small."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file

import cavalcade
from cavalcade import models
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.cage2.shared import with_order, workflow_options
from cavalcade.workflow.summary import pooled_compliance

from ..cli.helpers import refused, run

EPISODES = 300


def test_all_are_small_and_have_a_card(capsys):
    assert {"cage2-head", "cage2-leaderboard", "cage2-order", "cage2-small"} <= set(models.names())
    assert sum(models.model_file(name).stat().st_size for name in models.names()) <= 3_000_000
    _, listed, _ = run(capsys, "models")
    assert [line.split()[0] for line in listed.splitlines()] == [f"model:{name}" for name in models.names()]
    for name in models.names():
        _, text, _ = run(capsys, "models", name)
        for word in ("trained", "chosen", "observes", "network", "total", "limits", "licence"):
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


def test_models_carry_what_acting_needs():
    for name in models.names():
        tensors = load_file(models.model_file(name))
        assert not [key for key in tensors if "critic" in key]
        policy = cavalcade.load_policy(f"model:{name}")
        sizes = [policy.spec.inputs, *policy.spec.hidden, policy.spec.actions]
        assert models.card(name)["network"] == "-".join(map(str, sizes))
    assert models.model_file("cage2-small").stat().st_size < models.model_file("cage2-head").stat().st_size


def test_the_model_with_an_order_keeps_it():
    """Its own mask does that: without it, it would break the order."""
    card, policy = models.card("cage2-order"), cavalcade.load_policy("model:cage2-order")
    assert policy.order == card["order"]
    assert card["compliance"]["table"] == 1
    shares = {}
    for name, mine in {"with": policy, "without": replace(policy, mask=None)}.items():
        options = policy.config.task.shown | workflow_options(policy.config) | {"seed": 9, "stream": "heldout"}
        env = with_order(WorkflowCage2(300, red="meander", autoreset=False, **options), policy.config)
        env.track.mask[:] = 0  # of the games; the policy brings its own
        env.reset()
        runner = mine.runner()
        while not env.buffers.truncated[0]:
            env.step(runner(env))
        stats = dict(zip(env.episode_stat_names, env.episode_stats.T, strict=True))
        shares[name] = pooled_compliance(zip(stats["compliance"], stats["counted"], strict=True))
    assert shares["with"] == 1
    assert shares["without"] < 1


def test_unknown_names_are_refused(capsys):
    with pytest.raises(ConfigError, match="there is no model 'soup'; it must be one of cage2-head"):
        cavalcade.load_policy("model:soup")
    assert "there is no model 'soup'" in refused(capsys, "evaluate", "model:soup")
    assert "there is no model 'soup'" in refused(capsys, "play", "model:soup")
    assert "there is no model 'soup'" in refused(capsys, "models", "soup")
