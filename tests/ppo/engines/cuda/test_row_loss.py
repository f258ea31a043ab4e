"""The loss over samples sorted by row is the plain loss: gradients, metrics, rows that span many chunks, rare masks."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from cavalcade.policy.heads import head_for
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.cuda.row_loss import GROUP, Experience, Sorted
from cavalcade.ppo.loss import Minibatch, ppo_loss
from cavalcade.ppo.objective import METRICS, Coefficients

POLICIES, ACTIONS, CHUNK = 2, 40, 2
LENGTHS = {
    "every sample is a row": [1] * 90,
    "short rows": [3, 1, 7, 2, 2, 30, 1, 44],
    "rows of many chunks": [5, 2 * GROUP * CHUNK + 3, 1, 4 * GROUP * CHUNK, 9, GROUP * CHUNK],
    "one row": [5 * GROUP * CHUNK + 1],
}


def samples(lengths, seed=0):
    """Experience of rows of given lengths, in random order, with masks that allow the action."""
    rng = np.random.default_rng(seed)
    b, rows = sum(lengths), len(lengths)
    allowed = rng.random((POLICIES * b, ACTIONS)) < 0.6
    action = rng.integers(0, ACTIONS, POLICIES * b)
    allowed[np.arange(POLICIES * b), action] = True
    words = np.zeros((POLICIES * b, 2), np.int64)
    for a in range(ACTIONS):
        words[:, a // 32] |= allowed[:, a].astype(np.int64) << a % 32
    x = Experience(words.astype(np.uint32).view(np.int32).reshape(POLICIES * b, 2), action.astype(np.int32),
                   *(rng.standard_normal(POLICIES * b) for _ in range(4)))  # fmt: skip
    order = np.concatenate([p * b + rng.permutation(b) for p in range(POLICIES)])
    s = Sorted(order.astype(np.int32), np.tile(np.repeat(np.arange(rows), lengths), POLICIES).astype(np.int32))
    return x, s, allowed, b, rows, rng


def plain(x, s, allowed, b, logits, values, c):
    """Metrics and gradients by the reference, with one row of logits per sample."""
    logits, values = logits.clone().requires_grad_(), values.clone().requires_grad_()
    row = torch.from_numpy(s.row.astype(np.int64)).view(POLICIES, b)
    pick = torch.from_numpy(s.sample.astype(np.int64)).view(POLICIES, b)
    index = row.unsqueeze(-1).expand(-1, -1, ACTIONS)
    fields = [torch.from_numpy(np.asarray(y))[pick] for y in x[1:]]
    fields = [fields[0].long(), fields[1], fields[2], fields[3], fields[4]]
    batch = Minibatch(torch.zeros(0), torch.from_numpy(allowed)[pick], *fields, torch.ones(POLICIES, b))
    coefficients = Coefficients(*map(torch.from_numpy, c))
    head = head_for(Discrete(ACTIONS))
    loss, metrics = ppo_loss(head, logits.gather(1, index), values[:, 0].gather(1, row), batch, coefficients)
    loss.sum().backward()
    return metrics, logits.grad, values.grad


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("value_clip", [0.0, 0.3])
@pytest.mark.parametrize("spread", [1.0, 300.0])  # of logits: with 300, what masks allow is often far below the largest
def test_it_is_the_plain_loss(name, value_clip, spread):
    x, s, allowed, b, rows, rng = samples(LENGTHS[name])
    logits = torch.from_numpy(rng.standard_normal((POLICIES, rows, ACTIONS)) * spread)
    values = torch.from_numpy(rng.standard_normal((POLICIES, 1, rows)))
    log_p = torch.from_numpy(rng.standard_normal(POLICIES * b) * 0.1)
    flat = logits.gather(1, torch.from_numpy(s.row.astype(np.int64)).view(POLICIES, b, 1).expand(-1, -1, ACTIONS))
    pick = torch.from_numpy(s.sample.astype(np.int64))
    masked = flat.reshape(-1, ACTIONS).masked_fill(~torch.from_numpy(allowed)[pick], -torch.inf).log_softmax(-1)
    near = masked.gather(1, torch.from_numpy(x.action.astype(np.int64))[pick].unsqueeze(1))[:, 0]
    old = np.zeros(POLICIES * b)
    old[pick.numpy()] = (near + log_p).numpy()  # near the new ones, so that some ratios are clipped and others not
    x = x._replace(log_prob=old)
    c = tuple(np.array(v) for v in ([0.2, 0.1], [0.5, 0.7], [0.01, 0.2], [value_clip, value_clip]))
    ops = Ops(torch.device("cpu"))
    d_logits, d_values = torch.zeros_like(logits), torch.zeros_like(values)
    chunks, groups = POLICIES * -(-b // CHUNK), POLICIES * -(-b // (CHUNK * GROUP))
    parts, sums = (torch.full((n, ACTIONS + 1), torch.nan, dtype=torch.float64) for n in (2 * chunks, groups))
    terms = torch.zeros(len(METRICS), chunks, dtype=torch.float64)
    ops.row_loss(
        POLICIES, ACTIONS, b, CHUNK, Coefficients(*c), 0, s, x, logits, values, d_logits, d_values, parts, sums, terms
    )
    metrics, want_logits, want_values = plain(x, s, allowed, b, logits, values, c)
    for got, want in ((d_logits, want_logits), (d_values, want_values)):
        assert (got - want).norm() <= 1e-10 * want.norm()
    for got, want in zip(terms.view(len(METRICS), POLICIES, -1).sum(2), metrics.values(), strict=True):
        torch.testing.assert_close(got, want, atol=1e-10, rtol=1e-9)
