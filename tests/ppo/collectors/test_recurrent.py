"""Recurrent policies on fragments: workers act as the learner does, also after they were replaced."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.config import HostConfig, PPOConfig
from cavalcade.config.memory import MemoryConfig
from cavalcade.policy.recurrent import TokenPolicy, seeded
from cavalcade.policy.rows import RowLayout, RowPolicy
from cavalcade.policy.tokens import TokenLayout
from cavalcade.ppo.collectors.recurrent import RowFragmentEngine
from cavalcade.ppo.collectors.recurrent_player import described, network_from, scaling_of, values_of
from cavalcade.ppo.engine import head_of
from cavalcade.ppo.engines.recurrent.rows import RowEngine
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source
from tests.vector.test_hosted import game

PPO = PPOConfig(num_envs=8, rollout_steps=12, minibatches=2, hidden=(16,), learning_rate=0.01)
CPU = torch.device("cpu")


def learner(staleness=1, source=None, core="lstm", workers=2, config=PPO, **options):
    """An engine on fragments, or with staleness 0 the one that steps the environments itself."""
    given = {"workers": workers, "worker_timeout": 600, **options} if staleness else {"backend": "serial"}
    env = Hosted(source or game("Counting"), config.num_envs, HostConfig(staleness=staleness, **given))
    head = head_of(env)
    layout = RowLayout(env.buffers.observation.shape[1], torch.float32)
    policy = seeded(
        0, lambda: RowPolicy(layout, head.outputs, core=core, hidden=config.hidden, deviations=head.deviations)
    )
    with torch.no_grad():
        policy.actor.weight *= 100  # so that memory shows in log-probabilities
    recurrent = replace(MemoryConfig(memory="lstm", bptt_horizon=4).ppo(config), vtrace=staleness > 0)
    more = {"normalise": True, "device": CPU, "seed": 3}
    if staleness:
        engine = RowFragmentEngine(env, policy, recurrent, staleness=staleness, **more)
    else:
        engine = RowEngine(env, policy, recurrent, **more)
    env.reset()
    return engine


@pytest.fixture
def made():
    """Engines whose environments are closed after the test."""
    found = []

    def make(*args, **options):
        found.append(learner(*args, **options))
        return found[-1]

    yield make
    for one in found:
        one.env.close()


@pytest.mark.parametrize(
    ("core", "source"),
    [("lstm", None), ("gru", None), ("none", None), ("lstm", lambda: gym_source("Pendulum-v1"))],
)
def test_the_first_fragments_are_those_of_the_learner_itself(made, core, source):
    config = replace(PPO, rollout_steps=208) if source else PPO  # Pendulum is out of time after 200 steps
    far, here = (made(staleness, source and source(), core, config=config) for staleness in (1, 0))
    ours, theirs = far.collect(), here.collect()
    for name in ("observation", "mask", "action", "log_prob", "value", "state"):
        mine, other = getattr(far.experience, name), getattr(here.experience, name)
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(far.experience.begins, here.experience.begins)
    for name in ("reward", "ended", "bootstrap", "last_value"):
        mine, other = getattr(far.experience.results, name), getattr(here.experience.results, name)
        going_on = ~here.experience.results.ended[0, -1]
        if name == "last_value":
            mine, other = mine[0, going_on], other[0, going_on]
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    for name in ("environment", "length", "kind"):
        assert sorted(getattr(ours, name)) == sorted(getattr(theirs, name))
    np.testing.assert_allclose(sorted(ours.total), sorted(theirs.total), rtol=1e-5)


def recomputed(engine):
    """Log-probabilities of all segments by the engine's own network, from the stored states."""
    batch = engine.experience.take(torch.arange(engine.experience.segments))
    with torch.no_grad():
        out, _ = engine.policy(batch.observation, batch.state, batch.begins)
    return engine.head.evaluate(out.logits, batch.mask, batch.action)[0], batch.log_prob


@pytest.mark.parametrize("at", [4, 6])  # at the start of a segment, and within one
def test_a_replaced_worker_leaves_samples_that_the_network_reproduces(made, tmp_path, capfd, at):
    engine = made(1, game("Counting", trouble="kill", at=at, flag=str(tmp_path / "flag")))
    ended = engine.collect()
    assert engine.env.restarts == 1
    assert (ended.kind == 1).sum() == 4  # the environments of one worker
    torch.testing.assert_close(*recomputed(engine), rtol=1e-4, atol=1e-4)
    assert "restarting it (1 of 10)" in capfd.readouterr().err


def test_experience_is_never_too_old_and_comes_in_order(made):
    engine = made(2)
    last = {}
    for update in range(10):
        engine.collect()
        reported = engine.update(update / 10)["staleness"][0]
        assert reported == max(engine.ages) <= 2
        for row in range(8):
            x = torch.cat([engine.experience.observation[s * 8 + row] for s in range(3)]).numpy()
            when = x[:, 1] * 100 + x[:, 0]
            assert (np.diff(when) > 0).all()
            assert when[0] > last.get(x[0, 2], -1)
            last[x[0, 2]] = when[-1]


def test_with_one_update_of_age_results_do_not_depend_on_timing(made):
    runs = [made(1), made(1)]
    for update in range(4):
        for one in runs:
            one.collect()
            one.update(update / 4)
        for a, b in zip(*(one.policy.parameters() for one in runs), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert float(runs[0].state.return_count) == 4 * 96  # each reward once


def test_it_resumes_after_its_last_steps(made):
    engine = made(2)
    for update in range(3):
        engine.collect()
        engine.update(update / 8)
    saved = engine.snapshot()
    again = made(1, workers=4)
    again.restore(saved)
    again.collect()
    assert again.state.updates == 3
    clocks = again.tensors()[1]["actor_clocks"]
    assert (clocks >= engine.tensors()[1]["actor_clocks"].max()).all()
    assert (again.experience.observation[:8, 0, 0] == 0).all()  # new episodes


def test_a_network_of_tokens_is_made_again_from_plain_data():
    layout = TokenLayout(5, 5, ("tag", "hp"), (1.0, 2.0), 3, 6)
    one = seeded(1, lambda: TokenPolicy(layout, 4, core="gru", width=8))
    other = network_from(described(one), 0)
    assert other.layout == layout
    assert [p.shape for p in other.parameters()] == [p.shape for p in one.parameters()]
    assert len(values_of(one)) == sum(p.numel() for p in one.parameters())
    assert scaling_of(one) == ()
