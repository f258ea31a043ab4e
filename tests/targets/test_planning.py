"""Looking ahead: better actions from what Blue saw, and from nothing else."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import cavalcade
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scenario import FIRST_RESTORE_ACTION
from cavalcade.envs.cage2.state import GAME_FIELDS
from cavalcade.targets.cage2.planning import Planner

from ..cli.helpers import refused, run

HIDDEN = [name for name in GAME_FIELDS if name not in ("key", "step", "table", "seen_scanned", "seen_latest", "decoys")]


@pytest.fixture(scope="module")
def policy():
    return cavalcade.load_policy("model:cage2-leaderboard")


def games(policy, count, steps=12):
    shown = policy.config.task.shown
    return Cage2(count, red="meander", stream="heldout", objective="protocol", horizon=100, **shown), steps


def played(actor, env, steps, spoil=False):
    """Actions and rewards of some steps; spoil: scramble what Blue cannot see before each decision."""
    env.reset(seed=5)
    actions, rewards = [], []
    for _ in range(steps):
        before = env.save_state()
        if spoil:
            for name in HIDDEN:
                getattr(env.state, name)[:] = 1
        chosen = actor(env)
        env.load_state(before)
        actions.append(chosen.copy())
        rewards.append(env.step(chosen).reward.copy())
    return np.array(actions), np.array(rewards)


def test_without_continuations_it_is_the_policy(policy):
    env, steps = games(policy, 3)
    assert np.array_equal(played(Planner(policy, 0), env, steps)[0], played(policy.runner(), env, steps)[0])


def test_it_is_a_function_of_what_blue_sees(policy):
    env, steps = games(policy, 2)
    expected, _ = played(Planner(policy, 8), env, steps)
    assert np.array_equal(played(Planner(policy, 8), env, steps)[0], expected)
    assert np.array_equal(played(Planner(policy, 8), env, steps, spoil=True)[0], expected)


def test_it_mends_a_bad_policy(policy):
    """A policy that has forgotten how to restore learns from its own continuations where a Restore is due."""
    weights = policy.weights.copy()
    bias = policy.spec.parameters(torch.from_numpy(weights))[f"actor.{len(policy.spec.hidden)}.bias"]
    bias[:, FIRST_RESTORE_ACTION:] -= 6
    worse = replace(policy, weights=weights)
    env, steps = games(policy, 12, 40)
    plain = played(worse.runner(), env, steps)[1].sum()
    planner = Planner(worse, 32)
    planned = played(planner, env, steps)[1].sum()
    assert planner.changed > 0
    assert planned > plain


def test_what_cannot_plan_is_refused(policy, capsys):
    with pytest.raises(ConfigError, match="continuations is -1"):
        Planner(policy, -1)
    assert "only trained policies plan" in refused(capsys, "evaluate", "sleep", "--plan", "10")
    assert "plan is 10 with sampled" in refused(
        capsys, "evaluate", "model:cage2-leaderboard", "--plan", "10", "--sampled"
    )


def test_evaluate_plans(capsys):
    given = ("model:cage2-leaderboard", "--cells", "bline-30", "--episodes", "4", "--revisions", "leaderboard-2022")
    _, text, _ = run(capsys, "evaluate", *given, "--plan", "4")
    assert "with 4 continuations per action" in text
