import numpy as np
import pytest
import torch

from cavalcade.policy.recurrent import TokenPolicy, stretches
from tests.policy.test_tokens import LAYOUT, some_tokens


@pytest.mark.parametrize("encoder", ["bag", "conv", "perceiver"])
@pytest.mark.parametrize("core", ["none", "lstm", "gru"])
def test_steps_one_by_one_are_the_same_as_a_sequence(encoder, core):
    torch.manual_seed(0)
    policy = TokenPolicy(LAYOUT, 5, encoder=encoder, core=core, width=16)
    tokens, begins = some_tokens(6, 4), np.random.default_rng(1).random((6, 4)) < 0.3
    whole, after = policy(tokens, policy.initial_state(4), begins)
    state = policy.initial_state(4)
    for t in range(6):
        one, state = policy(tokens[t : t + 1], state, begins[t : t + 1])
        torch.testing.assert_close(one.logits[0], whole.logits[t], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(one.values[0], whole.values[t], atol=1e-5, rtol=1e-4)
    for a, b in zip(state, after, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_an_episode_knows_nothing_of_the_one_before(core):
    policy = TokenPolicy(LAYOUT, 5, core=core, width=16)
    policy.actor.weight.data.normal_()
    tokens, begins = some_tokens(6, 2), np.zeros((6, 2), np.bool_)
    begins[3, 1] = True
    other = tokens.clone()
    other[:3] = some_tokens(3, 2, seed=5)
    a, b = (policy(x, policy.initial_state(2), begins)[0].logits for x in (tokens, other))
    torch.testing.assert_close(a[3:, 1], b[3:, 1])
    assert not torch.allclose(a[3:, 0], b[3:, 0])


@pytest.mark.parametrize("core", ["lstm", "gru"])
def test_gradients_go_back_in_time_but_not_over_a_beginning(core):
    policy = TokenPolicy(LAYOUT, 5, core=core, width=16)
    begins = np.zeros((4, 1), np.bool_)
    for begun in (False, True):
        begins[2, 0] = begun
        state = tuple(s.requires_grad_() for s in policy.initial_state(1))
        out, _ = policy(some_tokens(4, 1), state, begins)
        grads = torch.autograd.grad(out.values[3].sum(), state, allow_unused=True)
        reached = any(g is not None and bool(g.abs().sum() > 0) for g in grads)
        assert reached != begun


@pytest.mark.parametrize("encoder", ["bag", "conv", "perceiver"])
def test_all_encoders_learn_from_what_they_see(encoder):
    """A place of an object is told from another after a few steps of descent."""
    torch.manual_seed(0)
    policy = TokenPolicy(LAYOUT, 2, encoder=encoder, core="none", width=32)
    tokens = torch.full((1, 64, 6, 3), 255, dtype=torch.uint8)
    side = torch.arange(64) % 2
    tokens[0, :, 0] = torch.stack([torch.where(side == 1, 0x04, 0x20), torch.ones(64), torch.full((64,), 2)], 1)
    tokens[0, :, 1] = torch.tensor([254, 0, 77])
    descent = torch.optim.Adam(policy.parameters(), 1e-2)
    for _ in range(60):
        out, _ = policy(tokens, (), np.zeros((1, 64), np.bool_))
        loss = torch.nn.functional.cross_entropy(out.logits[0], side)
        descent.zero_grad()
        loss.backward()
        descent.step()
    assert loss.item() < 0.05


def test_stretches():
    assert stretches([], 4) == [(0, 4)]
    assert stretches([0, 2, 3], 4) == [(0, 2), (2, 3), (3, 4)]
