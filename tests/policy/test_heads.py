"""Distributions over actions, held to torch's own."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Text
from torch.distributions import Categorical, Independent, Normal

from cavalcade.policy.heads import Choice, Choices, Point, head_for, head_from


def logits_of(head, n=7):
    torch.manual_seed(0)
    logits = torch.randn(2, n, head.outputs + head.deviations)
    mask = torch.rand(2, n, 0 if head.deviations else head.outputs) < 0.7
    mask[..., :1] = True
    if isinstance(head, Choices):
        for start in np.cumsum([0, *head.sizes[:-1]]):
            mask[..., start] = True
    return logits, mask


def reference(head, logits, mask):
    if isinstance(head, Point):
        mean, log_deviation = logits.chunk(2, -1)
        return [Independent(Normal(mean, log_deviation.exp()), 1)]
    masked = logits.masked_fill(~mask, -1e30)
    return [Categorical(logits=part) for part in masked.split(head.sizes, -1)]


@pytest.mark.parametrize("head", [Choice(5), Choices(3, 2, 4), Point(3)], ids=lambda head: head.kind)
def test_log_probabilities_and_entropies_are_those_of_torch(head):
    logits, mask = logits_of(head)
    action = head.sample(logits, mask, torch.rand(2, 7, head.draws, dtype=torch.float64))
    assert action.shape == (2, 7, *head.parts)
    log_prob, entropy = head.evaluate(logits, mask, action)
    parts = reference(head, logits, mask)
    columns = action.unbind(-1) if isinstance(head, Choices) else [action]
    expected = sum(d.log_prob(a) for d, a in zip(parts, columns, strict=True))
    torch.testing.assert_close(log_prob, expected)
    torch.testing.assert_close(entropy, sum(d.entropy() for d in parts))


@pytest.mark.parametrize("head", [Choice(5), Choices(3, 2, 4), Point(3)], ids=lambda head: head.kind)
def test_probabilities_part_after_part_or_means(head):
    logits, mask = logits_of(head)
    parts = reference(head, logits, mask)
    expected = parts[0].mean if isinstance(head, Point) else torch.cat([d.probs for d in parts], -1)
    torch.testing.assert_close(head.probabilities(logits, mask), expected)


def test_draws_follow_the_distribution():
    u = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000  # every quantile once
    head = Point(1)
    drawn = head.sample(torch.tensor([[2.0, np.log(3.0)]]).expand(20000, 2), torch.ones(20000, 0).bool(), u[:, None])
    assert float(drawn.mean()) == pytest.approx(2, abs=1e-2)
    assert float(drawn.std()) == pytest.approx(3, rel=1e-2)
    head, logits = Choices(2, 3), torch.tensor([[0.0, 1.0, 0.0, 2.0, 5.0]]).expand(20000, 5)
    mask = torch.tensor([[True, True, True, True, False]]).expand(20000, 5)
    drawn = head.sample(logits, mask, torch.stack([u, u.flip(0)], -1))
    assert float((drawn[:, 0] == 1).double().mean()) == pytest.approx(np.e / (1 + np.e), abs=1e-3)
    assert float((drawn[:, 1] == 1).double().mean()) == pytest.approx(np.e**2 / (1 + np.e**2), abs=1e-3)
    assert not (drawn[:, 1] == 2).any()  # masked


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_extreme_draws_are_finite(extreme):
    assert torch.isfinite(
        Point(2).sample(torch.zeros(1, 4), torch.ones(1, 0).bool(), torch.full((1, 2), extreme, dtype=torch.float64))
    ).all()


def test_greedy_takes_the_likeliest():
    mask = torch.tensor([[True, True, False]])
    assert Choice(3).greedy(torch.tensor([[0.0, 1.0, 2.0]]), mask).tolist() == [1]
    both = torch.tensor([[True] * 5])
    assert Choices(2, 3).greedy(torch.tensor([[0.0, 1.0, 3.0, 2.0, 1.0]]), both).tolist() == [[1, 0]]
    assert Point(2).greedy(torch.tensor([[3.0, 4.0, -1.0, -1.0]]), torch.ones(1, 0).bool()).tolist() == [[3, 4]]


def test_heads_fit_spaces():
    for space, kind, sizes in (
        (Discrete(4), "choice", (4,)),
        (MultiDiscrete([2, 3]), "choices", (2, 3)),
        (Box(-1, 1, (6,), np.float32), "point", (6,)),
    ):
        head = head_for(space)
        assert (head.kind, head.sizes) == (kind, sizes)
        again = head_from(head.kind, head.sizes)
        assert (again.outputs, again.deviations, again.parts) == (head.outputs, head.deviations, head.parts)
    assert head_for(Text(3)) is None
