import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from cavalcade.core.errors import ConfigError
from cavalcade.policy.tokens import END, NOWHERE, PlainRows, TokenBag, TokenLayout

LAYOUT = TokenLayout(3, 5, ("episode_completion_pct", "tag", "inv:ore"), (255.0, 10.0, 256.0), 4, 6)


def some_tokens(h, b, k=6, seed=0):
    rng = np.random.default_rng(seed)
    tokens = np.full((h, b, k, 3), END, np.uint8)
    for t in range(h):
        for i in range(b):
            n = rng.integers(0, k + 1)
            places = [row << 4 | column for row in range(3) for column in range(5)]
            tokens[t, i, :n, 0] = rng.choice([*places, NOWHERE, 200], n)  # 200 is outside the window
            tokens[t, i, :n, 1] = rng.integers(0, 5, n)  # 3 and 4 are no features
            tokens[t, i, :n, 2] = rng.integers(0, 256, n)
    return torch.from_numpy(tokens)


def plain_bag(bag, tokens):
    """The same sums in plain torch: the reference."""
    rows, weights = PlainRows(bag.layout)(tokens)
    padded = torch.cat([bag.table, torch.zeros_like(bag.table[:1])])
    return (F.embedding(rows.long(), padded) * weights.unsqueeze(-1)).sum(-2) + bag.bias


def test_sums_and_gradients_are_those_of_plain_torch():
    bag = TokenBag(LAYOUT, 24)
    tokens = some_tokens(5, 7)
    found, wanted = bag(tokens), plain_bag(bag, tokens)
    torch.testing.assert_close(found, wanted)
    direction = torch.randn(5, 7, 24)
    mine = torch.autograd.grad((found * direction).sum(), (bag.table, bag.bias))
    reference = torch.autograd.grad((wanted * direction).sum(), (bag.table, bag.bias))
    for a, b in zip(mine, reference, strict=True):
        torch.testing.assert_close(a, b)


def test_views_that_are_not_contiguous_mean_the_same():
    bag, tokens = TokenBag(LAYOUT, 8), some_tokens(4, 3)
    turned = tokens.transpose(0, 1).contiguous().transpose(0, 1)
    assert torch.equal(bag(turned), bag(tokens))


def test_every_meaning_has_rows_of_its_own():
    t = LAYOUT.tables
    used = t.base >= 0
    spans = sorted(zip(t.base[used].tolist(), t.levels[used].tolist(), strict=True))
    ends = [start + n for start, n in spans]
    assert [start for start, _ in spans[1:]] == ends[:-1]
    assert ends[-1] == t.rows
    assert used.sum() == 16 * 3


def test_kinds_and_small_numbers_of_ones_own_are_categories_and_the_rest_weigh():
    t, own, other = LAYOUT.tables, 1 << 4 | 2, 0
    assert t.levels[other, 1] == 4
    assert t.levels[own, 2] == t.levels[NOWHERE, 2] == 16
    assert t.levels[other, 2] == t.levels[NOWHERE, 0] == 1
    assert t.weight[0, 255] == 1.0
    assert t.weight[2, 3] == pytest.approx(0.25)


def test_what_comes_after_the_end_does_not_count():
    bag, tokens = TokenBag(LAYOUT, 8), some_tokens(2, 2)
    tokens[:, :, 3] = END
    other = tokens.clone()
    other[:, :, 4:] = 1
    assert torch.equal(bag(tokens), bag(other))


@pytest.mark.parametrize(("height", "tokens"), [(16, 6), (3, 0)])
def test_layouts_that_cannot_be_are_refused(height, tokens):
    with pytest.raises(ConfigError):
        TokenLayout(height, 5, ("tag",), (1.0,), 4, tokens)
