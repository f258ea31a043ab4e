"""The loss by hand, and its masks."""

import math

import pytest
import torch

from cavalcade.policy.heads import Choice, masked_log_probs
from cavalcade.ppo.loss import Minibatch, ppo_loss
from cavalcade.ppo.objective import Coefficients


def batch(**given):
    """One policy, one sample: three actions, the last forbidden."""
    parts = {
        "observation": torch.zeros(1, 1, 1), "mask": torch.tensor([[[True, True, False]]]),
        "action": torch.tensor([[1]]), "log_prob": torch.tensor([[math.log(0.5)]]), "value": torch.tensor([[1.0]]),
        "advantage": torch.tensor([[2.0]]), "returns": torch.tensor([[3.0]]), "weight": torch.ones(1, 1),
    }  # fmt: skip
    return Minibatch(**parts | {name: torch.tensor([[value]]) for name, value in given.items()})


def coefficients(clip=0.2, value=0.0, entropy=0.0, value_clip=0.0):
    return Coefficients(*(torch.tensor([x]) for x in (clip, value, entropy, value_clip)))


def loss_of(p, value=0.0, c=None, **given):
    """The loss if the policy gives the taken action probability p."""
    logits = torch.tensor([[[math.log(1 - p), math.log(p), 5.0]]])
    return ppo_loss(Choice(3), logits, torch.tensor([[value]]), batch(**given), c or coefficients())


@pytest.mark.parametrize(
    ("p", "advantage", "gain"),
    [(0.5, 2.0, 2.0), (0.55, 2.0, 2.2), (0.9, 2.0, 2.4), (0.1, 2.0, 0.4), (0.1, -2.0, -1.6), (0.9, -2.0, -3.6)],
)
def test_the_ratio_counts_as_far_as_clip_and_never_in_favour(p, advantage, gain):
    loss, _ = loss_of(p, advantage=advantage)
    assert float(loss) == pytest.approx(-gain, rel=1e-5)


def test_importance_weights_scale_the_policy_loss():
    assert float(loss_of(0.5, weight=0.25)[0]) == pytest.approx(-0.5)


def test_entropy_and_kl_leave_out_what_is_forbidden():
    loss, metrics = loss_of(0.5, advantage=0.0, c=coefficients(entropy=1.0))
    assert float(loss) == pytest.approx(-math.log(2))
    assert float(metrics["kl"]) == pytest.approx(0, abs=1e-7)
    log_probs = masked_log_probs(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
    assert log_probs.exp().tolist() == [[0.5, 0.5, 0.0]]


@pytest.mark.parametrize(("limit", "expected"), [(0.0, 1.0), (0.5, 2.25), (5.0, 1.0)])
def test_value_clipping_takes_the_larger_loss(limit, expected):
    """The value was 1, is 2, should be 3; held within 0.5 it would be 1.5."""
    loss, _ = loss_of(0.5, value=2.0, advantage=0.0, c=coefficients(value=1.0, value_clip=limit))
    assert float(loss) == pytest.approx(expected)
