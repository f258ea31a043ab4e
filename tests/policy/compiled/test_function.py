"""The compiled passes against torch's own operations: outputs, and gradients of every parameter and state."""

import copy
import itertools
import pickle

import numba
import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from cavalcade.policy.recurrent import TokenPolicy
from tests.policy.test_tokens import LAYOUT, plain_bag, some_tokens

STEPS, AGENTS, ACTIONS = 7, 13, 5
CORES = ("none", "lstm", "gru")


def policy_of(core, width, dtype):
    """A policy whose parameters are all different from zero."""
    torch.manual_seed(1)
    policy = TokenPolicy(LAYOUT, ACTIONS, core=core, width=width).to(dtype)
    for p in policy.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return policy


def plain(policy, tokens, state, begins):
    """The same outputs by torch's operations, a step at a time."""
    e, c = policy.encoder, policy.core
    x = F.relu(e.layer(F.relu(plain_bag(e.bag, tokens))))
    if c is not None:
        weights, h = (c.weight_ih_l0, c.weight_hh_l0, c.bias_ih_l0, c.bias_hh_l0), tuple(s[0] for s in state)
        seen = []
        for t in range(len(x)):
            h = tuple(s * torch.from_numpy(~begins[t]).unsqueeze(-1) for s in h)
            h = torch.lstm_cell(x[t], h, *weights) if len(h) == 2 else (torch.gru_cell(x[t], h[0], *weights),)
            seen.append(h[0])
        x, state = torch.stack(seen), tuple(s.unsqueeze(0) for s in h)
    return policy.actor(x), policy.critic(x).squeeze(-1), x, *state


def results(policy, run, steps=STEPS, agents=AGENTS):
    """Outputs, and gradients of all parameters and first states, for episodes that begin in the middle."""
    torch.manual_seed(2)
    dtype = policy.actor.weight.dtype
    tokens, begins = some_tokens(steps, agents), np.random.default_rng(1).random((steps, agents)) < 0.3
    state = tuple(torch.randn(*s.shape, dtype=dtype).requires_grad_() for s in policy.initial_state(agents))
    found = run(policy, tokens, state, begins)
    loss = sum((x * torch.randn_like(x)).sum() for x in found)
    return tuple(x.detach() for x in found), torch.autograd.grad(loss, (*policy.parameters(), *state))


def compiled(policy, tokens, state, begins):
    out, after = policy(tokens, state, begins)
    return *out, *after


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
def test_outputs_and_gradients_are_those_of_plain_torch(core, dtype, tolerance):
    for width in (32, 20):  # whole panels, and padded ones
        policy = policy_of(core, width, dtype)
        (wanted, reference), (found, mine) = results(policy, plain), results(policy, compiled)
        assert len(wanted) == len(found)
        for a, b in zip((*found, *mine), (*wanted, *reference), strict=True):
            assert float(b.norm()) > 0
            assert float((a - b).norm()) <= tolerance * float(b.norm())


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread")  # pyright: ignore
@pytest.mark.parametrize("core", ["none", "lstm"])
def test_the_number_of_threads_makes_no_difference_to_the_bit(core):
    policy, found = policy_of(core, 32, torch.float32), []
    before = numba.get_num_threads()
    try:
        for threads in (1, 2):
            numba.set_num_threads(threads)
            found.append(results(policy, compiled))
    finally:
        numba.set_num_threads(before)
    for a, b in zip((*found[0][0], *found[0][1]), (*found[1][0], *found[1][1]), strict=True):
        assert torch.equal(a, b)


def test_acting_is_learning_to_the_bit():
    """So that probability ratios of unchanged policies are exactly 1."""
    policy = policy_of("lstm", 32, torch.float32)
    tokens, begins = some_tokens(3, 4), np.zeros((3, 4), np.bool_)
    whole, _ = policy(tokens, policy.initial_state(4), begins)
    state = policy.initial_state(4)
    with torch.no_grad():
        for t in range(3):
            one, state = policy(tokens[t : t + 1], state, begins[t : t + 1])
            assert torch.equal(one.logits[0], whole.logits[t])
            assert torch.equal(one.values[0], whole.values[t])


def test_passes_may_overlap_and_workspaces_are_used_again():
    policy = policy_of("gru", 32, torch.float32)
    _, wanted = results(policy, compiled)
    other, _ = policy(some_tokens(9, 5, seed=7), policy.initial_state(5), np.zeros((9, 5), np.bool_))

    def nested(*given):
        found = compiled(*given)
        policy(some_tokens(2, 40, seed=8), policy.initial_state(40), np.zeros((2, 40), np.bool_))
        other.values.sum().backward()
        return found

    _, found = results(policy, nested)
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b)


def test_a_second_backward_pass_over_the_same_outputs_is_refused():
    policy = policy_of("none", 32, torch.float32)
    out, _ = policy(some_tokens(2, 3), (), np.zeros((2, 3), np.bool_))
    out.values.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one such pass"):
        out.values.sum().backward()


def test_copies_and_pickles_act_the_same():
    policy = policy_of("lstm", 32, torch.float32)
    given = some_tokens(2, 3), policy.initial_state(3), np.zeros((2, 3), np.bool_)
    wanted, _ = policy(*given)
    for other in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert torch.equal(other(*given)[0].logits, wanted.logits)


@pytest.mark.parametrize("core", CORES)
def test_gradients_share_no_memory(core):
    """So that clipping or accumulating one in place leaves the others alone."""
    _, found = results(policy_of(core, 32, torch.float32), compiled)
    sizes = [1 + sum((n - 1) * s for n, s in zip(g.shape, g.stride(), strict=True)) for g in found]
    spans = sorted((g.data_ptr(), g.data_ptr() + 4 * n) for g, n in zip(found, sizes, strict=True))
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))


@torch.no_grad()
def test_fixed_parameters_are_packed_once_and_anew_afterwards():
    policy = policy_of("lstm", 16, torch.float32)
    given = some_tokens(1, AGENTS), policy.initial_state(AGENTS), np.zeros((1, AGENTS), np.bool_)
    before = compiled(policy, *given)
    with policy.fixed():
        for _ in range(2):
            for x, y in zip(before, compiled(policy, *given), strict=True):
                assert torch.equal(x, y)
        assert policy._passes._packed is not None
    policy.actor.weight += 1
    torch.testing.assert_close(compiled(policy, *given)[0], plain(policy, *given)[0], rtol=1e-4, atol=1e-5)
