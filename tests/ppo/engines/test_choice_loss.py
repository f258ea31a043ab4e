import numpy as np
import pytest
import torch

from cavalcade.policy.heads import Choice
from cavalcade.ppo.engines.choice_loss import choice_loss
from cavalcade.ppo.loss import Minibatch, ppo_loss
from cavalcade.ppo.objective import Coefficients

STEPS, SEGMENTS, ACTIONS = 9, 14, 5


def samples(seed, kind):
    """Logits, values and a minibatch, time first, with forbidden actions and some ratios beyond the clip range."""
    rng = np.random.default_rng(seed)

    def numbers(*shape):
        return torch.from_numpy(rng.standard_normal((SEGMENTS, STEPS, *shape))).to(kind).transpose(0, 1)

    mask = numbers(ACTIONS) > -0.5
    action = torch.from_numpy(rng.integers(0, ACTIONS, (SEGMENTS, STEPS)).astype(np.int32)).T
    mask = mask.scatter(-1, action.long().unsqueeze(-1), True)
    logits = 2 * numbers(ACTIONS)
    log_prob, _ = Choice(ACTIONS).evaluate(logits, mask, action)
    observation = torch.zeros(STEPS, SEGMENTS, 1)
    batch = Minibatch(
        observation, mask, action, log_prob + 0.3 * numbers(), numbers(), numbers(), numbers(), numbers().abs()
    )
    return logits, numbers(), batch


@pytest.mark.parametrize("value_clip", [0.0, 0.4])
@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_loss_metrics_and_gradient_are_those_of_the_reference(kind, tolerance, value_clip):
    given, values, batch = samples(0, kind)
    c = Coefficients(*(torch.full((1,), x, dtype=kind) for x in (0.2, 0.7, 0.03, value_clip)))
    found = []
    for fused in (True, False):
        x, v = given.clone().requires_grad_(), values.clone().requires_grad_()
        if fused:
            loss, metrics = choice_loss(x, v, batch, c)
        else:
            flat = Minibatch(*(field.flatten(0, 1).unsqueeze(0) for field in batch))
            loss, metrics = ppo_loss(Choice(ACTIONS), x.flatten(0, 1)[None], v.flatten()[None], flat, c)
        (3 * loss).sum().backward()
        found.append((loss.detach(), *metrics.values(), x.grad, v.grad))
        assert 0 < float(metrics["clip_fraction"]) < 1
    for mine, wanted in zip(*found, strict=True):
        assert mine.shape == wanted.shape
        assert float((mine - wanted).norm()) <= tolerance * float(wanted.norm())
