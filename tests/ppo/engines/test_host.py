"""The cpu engine against plain torch: gradients, weights, learning curves; plain and distinct rows alike."""

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.ppo.algorithm import learning_rates
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.state import HyperParams
from cavalcade.ppo.update import gradient

KINDS = ("torch", "plain", "distinct")
LIMIT = {torch.float64: 1e-10, torch.float32: 1e-4}


def make(kind, dtype=torch.float64, policies=2, n=10, red="meander", context=True, seeds=None, hyper=None, **settings):
    seeds = list(range(policies)) if seeds is None else seeds
    env = Cage2(len(seeds) * n, red=red, seed=seeds)
    options = {"dtype": dtype, "hyper": hyper}
    if context:
        options["context"] = np.array(seeds)[:, None] / 3 + np.arange(3)
    config = PPOConfig(num_envs=n, **{"rollout_steps": 50} | settings)
    if kind == "torch":
        learner = TorchEngine(env, config, seeds, **options)
    else:
        learner = CpuEngine(env, config, seeds, distinct=kind == "distinct", **options)
    env.reset()
    return learner


def weights_after(kind, updates=3, **settings):
    learner = make(kind, **settings)
    metrics = {}
    for u in range(updates):
        learner.collect()
        metrics = learner.update(u / updates)
    return learner.state.weights.clone(), metrics


def whole_gradient(learner):
    """The gradient over the whole rollout at the weights of this moment."""
    if isinstance(learner, TorchEngine):
        return gradient(
            learner.head, learner._forward, learner.state.weights, learner._fresh(), learner._coefficients, 1
        )[0]
    learner.prepare(0.0)
    samples = learner.config.num_envs * learner.config.rollout_steps
    learner.gradient((learner._order, 0, samples), np.ones(learner.policies, np.bool_))
    return torch.from_numpy(learner._gradient.copy())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("hidden", [(64, 64), (24,)])
@pytest.mark.parametrize("updates", [0, 4])
def test_gradients_are_equal(dtype, hidden, updates):
    """Fresh and partly trained; the weights are shaken after the rollout, so that ratios are off 1 and some clipped."""
    found = []
    for kind in KINDS:
        learner = make(kind, dtype, hidden=hidden)
        for _ in range(updates):
            learner.collect()
            learner.update(0.0)
        learner.collect()
        noise = torch.randn(learner.state.weights.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        learner.state.weights += 0.1 * noise * (learner.state.weights != 0)  # the padding stays zero
        found.append(whole_gradient(learner).double())
    for other in found[1:]:
        gap = (other - found[0]).norm(dim=1) / found[0].norm(dim=1)
        assert gap.max() <= LIMIT[dtype]
    assert found[0].norm(dim=1).min() > 1e-3


def test_gradients_of_random_batches_are_equal():
    """Rewards at random, weights far from those that acted: nothing about the batch looks like training."""
    found = []
    for kind in KINDS:
        learner = make(kind)
        learner.collect()
        rng = torch.Generator().manual_seed(7)
        learner.rollout.reward.copy_(torch.randn(learner.rollout.reward.shape, generator=rng))
        shape = learner.state.weights.shape
        learner.state.weights += 0.3 * torch.randn(shape, generator=rng).double() * (learner.state.weights != 0)
        found.append(whole_gradient(learner))
    for other in found[1:]:
        assert ((other - found[0]).norm(dim=1) / found[0].norm(dim=1)).max() <= 1e-10


SETTINGS = [
    {},
    {"minibatches": 5, "epochs": 2},
    {"minibatches": 2, "grad_accum": 5, "normalise_observations": True},
    {"target_kl": 0.0005},
    {"normalise_returns": False, "normalise_advantages": False, "timeout_is_terminal": True, "learning_rate": 1e-4},
    {"rollout_steps": 25, "hidden": (32, 32, 32), "grad_clip": 0.0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s) or "default")
def test_weights_after_three_updates_are_equal(settings):
    expected, their_metrics = weights_after("torch", **settings)
    for kind in KINDS[1:]:
        found, metrics = weights_after(kind, **settings)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
        for name, values in their_metrics.items():
            np.testing.assert_allclose(metrics[name], values, rtol=1e-6, atol=1e-9, err_msg=name)


def test_value_clipping_needs_plain_rows():
    settings = {"value_clip": 0.2, "epochs": 8}
    expected, _ = weights_after("torch", **settings)
    torch.testing.assert_close(weights_after("plain", **settings)[0], expected, rtol=0, atol=1e-9)
    unclipped, _ = weights_after("torch", epochs=8)
    assert (unclipped - expected).abs().max() > 1e-4  # the clipping did something
    with pytest.raises(ConfigError, match=r"value_clip is 0.2; deduplication does not support it"):
        make("distinct", **settings)


@pytest.mark.parametrize("kind", KINDS)
def test_a_population_learns_what_each_would_learn_alone(kind):
    seeds, rates = [5, 6, 9], [1e-3, 2e-3, 4e-3]
    config = PPOConfig(num_envs=10)

    def some(which):
        hyper = HyperParams.of(
            config, len(which), learning_rate=[rates[i] for i in which], clip=[0.1 * (i + 1) for i in which]
        )
        settings = {"seeds": [seeds[i] for i in which], "hyper": hyper, "dtype": torch.float32, "target_kl": 0.01}
        return weights_after(kind, **settings)[0]

    together = some([0, 1, 2])
    for i in range(3):
        torch.testing.assert_close(together[i : i + 1], some([i]), rtol=0, atol=1e-5)
    assert (together[0] - together[1]).abs().max() > 1e-2


def curve(kind, seeds, updates=60, **settings):
    """Mean return of the last episodes of each policy."""
    learner = make(kind, torch.float32, seeds=seeds, n=20, red="bline", context=False, rollout_steps=100, **settings)
    returns = []
    for u in range(updates):
        episodes = learner.collect()
        learner.update(u / updates)
        if u >= updates - 20:
            returns.append([episodes.total[episodes.policy == p].mean() for p in range(len(seeds))])
    return np.mean(returns, axis=0)


def test_learning_curves_of_plain_and_distinct_rows_coincide_within_noise():
    plain, distinct = curve("plain", [0, 1, 2, 3, 4]), curve("distinct", [0, 1, 2, 3, 4])
    spread = np.sqrt((plain.var(ddof=1) + distinct.var(ddof=1)) / 5)
    assert abs(plain.mean() - distinct.mean()) < 4 * spread
    assert distinct.mean() > -120  # a random defender gets about -700


def test_a_population_learns_like_its_members_alone():
    together = curve("distinct", [0, 1, 2], updates=100)
    alone = np.concatenate([curve("distinct", [seed], updates=100) for seed in (0, 1, 2)])
    spread = np.sqrt((together.var(ddof=1) + alone.var(ddof=1)) / 3)
    assert abs(together.mean() - alone.mean()) < 4 * spread + 1


def test_a_policy_past_its_kl_limit_sits_out_while_others_go_on():
    config = PPOConfig(num_envs=10)
    found = []
    for kind in KINDS:
        learner = make(kind, hyper=HyperParams.of(config, 2, target_kl=[1e-12, 0.0]), epochs=4)
        learner.collect()
        found.append(learner.update(0.0))
        assert learner.state.adam_steps.tolist() == [1, 4]
    for name, values in found[0].items():
        for other in found[1:]:
            np.testing.assert_allclose(other[name], values, rtol=1e-6, atol=1e-9, err_msg=name)
    assert found[0]["entropy"].min() > 4  # that of both, over the steps that each took part in


def test_the_learning_rate_falls_to_nothing_if_it_shall():
    assert learning_rates(make("plain", schedule="linear"), 0.75).tolist() == pytest.approx([5e-4] * 2)
    assert learning_rates(make("plain", schedule="constant"), 0.75).tolist() == pytest.approx([2e-3] * 2)


def test_the_number_of_threads_changes_nothing():
    from cavalcade.core.threads import use_threads

    use_threads(1)
    one, _ = weights_after("distinct")
    use_threads(2)
    assert torch.equal(weights_after("distinct")[0], one)


def test_how_a_learner_is_chosen_and_what_is_said():
    env = Cage2(10)
    learner, notes = make_engine(env, PPOConfig(num_envs=10), [0])
    assert (learner.name, notes, learner.rollout.row.numel() > 0) == ("cpu", [], True)
    learner, notes = make_engine(env, PPOConfig(num_envs=10, value_clip=0.2), [0])
    assert learner.rollout.row.numel() == 0
    assert "no deduplication" in notes[0]
    assert "value_clip is 0.2" in notes[0]
    learner, notes = make_engine(env, PPOConfig(num_envs=10, replay=2), [0])
    assert learner.name == "torch"
    assert "replay is 2" in notes[0]
    with pytest.raises(ConfigError, match="replay is 2"):
        make_engine(env, PPOConfig(num_envs=10, replay=2, engine="cpu"), [0])
    with pytest.raises(ConfigError, match="the batch has 10 environments; 3 policies × 10 need 30"):
        make_engine(env, PPOConfig(num_envs=10), [0, 1, 2])


def test_hyper_parameters_by_policy():
    config = PPOConfig()
    assert HyperParams.of(config, 2, clip=[0.1, 0.3]).clip.tolist() == [0.1, 0.3]
    with pytest.raises(ConfigError, match="'speed' is not a hyper-parameter of a policy; there are learning_rate"):
        HyperParams.of(config, 2, speed=[1, 2])
    with pytest.raises(ConfigError, match="clip has 3 values for 2 policies"):
        HyperParams.of(config, 2, clip=[1, 2, 3])
