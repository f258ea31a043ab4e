"""Critics that see the true state, and policies that do not."""

import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.envs.cage2.truth import TRUTH_VALUES
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.ppo.engines.torch import TorchEngine

SEEDS = (3, 4)


def trained(name, updates=2):
    config = PPOConfig(num_envs=4, rollout_steps=10, hidden=(8,), epochs=2, minibatches=2)
    env = Cage2(8, red="meander", horizon=10, seed=list(SEEDS), critic="true-state")
    env.reset()
    if name == "cuda":
        engine = CudaEngine(env, DeviceCage2(env, torch.device("cpu")), config, SEEDS)
    elif name == "torch":
        engine = TorchEngine(env, config, SEEDS)
    else:
        engine = CpuEngine(env, config, SEEDS, distinct=name == "distinct")
    for _ in range(updates):
        engine.collect()
        engine.update(0.0)
    return engine


@pytest.mark.parametrize("name", ["torch", "cpu", "distinct", "cuda"])
def test_actors_never_use_the_true_state(name):
    engine = trained(name)
    named = engine.spec.parameters(engine.state.weights)
    assert not named["actor.0.weight"][:, -TRUTH_VALUES:].any()
    assert not engine.state.first_moment[:, engine.spec.unseen].any()
    fresh = engine.spec.parameters(engine.spec.initial_weights(list(SEEDS)))
    seen = named["critic.0.weight"][:, -TRUTH_VALUES:] - fresh["critic.0.weight"][:, -TRUTH_VALUES:]
    assert seen.abs().max() > 1e-4, "the critic learns from it"


@pytest.mark.parametrize("name", ["cpu", "distinct"])
def test_engines_agree(name):
    assert torch.allclose(trained(name, 1).state.weights, trained("torch", 1).state.weights, atol=2e-5)


def test_policies_act_alike_without_those_values():
    spec = MlpSpec(9, 5, (8, 6), context=2, critic_values=4)
    weights = spec.initial_weights([1, 2])
    small, kept = spec.without_critic_values(weights.numpy())
    x, context = torch.rand(2, 7, 9), torch.rand(2, 2)
    logits, values = spec.forward(weights, x, context)
    fewer, unknown = small.forward(torch.from_numpy(kept), x[..., :5], context)
    assert torch.allclose(logits, fewer, atol=1e-6)
    assert values.isfinite().all()
    assert unknown.isnan().all(), "nobody can take what the critic says without them for a value"
