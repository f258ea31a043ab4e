"""Operations are counted as torch counts them."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.policy.mlp import MlpSpec
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.ppo.factory import make_engine
from cavalcade.tuning import bounds

from ..policy.test_tokens import LAYOUT, some_tokens


def counted(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize("spec", [MlpSpec(52, 145), MlpSpec(7, 16, (24, 8, 5), context=3)])
def test_operations_of_perceptrons(spec):
    weights = spec.initial_weights([0]).requires_grad_()
    x, context = torch.randn(1, 1, spec.inputs), torch.randn(1, spec.context)

    def gradient():
        logits, values = spec.forward(weights, x, context)
        (logits.sum() + values.sum()).backward()

    assert counted(lambda: spec.forward(weights, x, context)) == spec.forward_operations
    assert counted(gradient) == spec.gradient_operations


def test_operations_of_a_policy_on_tokens():
    policy = TokenPolicy(LAYOUT, 5, core="none", width=32)
    policy.compiled = False  # operations of torch are counted
    tokens = some_tokens(1, 1)
    assert counted(lambda: policy(tokens, (), np.zeros((1, 1), np.bool_))) == policy.forward_operations
    memory = TokenPolicy(LAYOUT, 5, core="lstm", width=32)
    assert memory.forward_operations - policy.forward_operations == 2 * 2 * 4 * 32 * 32


def test_the_verdict_names_operations_and_bottleneck():
    env = Cage2(4)
    engine, _ = make_engine(env, PPOConfig(num_envs=4, rollout_steps=5, epochs=3), [0])
    spec = engine.spec
    assert engine.operations(0.5) == 0.5 * (spec.forward_operations + 3 * spec.gradient_operations)
    engine.timer.seconds.update(act=1.0, update=3.0)
    said = bounds.verdict(engine, 1e6, 0.5, 1)
    assert "bottleneck: update (75% of the time)" in said
    assert f"{engine.operations(0.5):,.0f} operations per step (50.0% of samples computed)" in said
