"""Networks: shapes, initial weights, populations."""

import numpy as np
import pytest
import torch

from cavalcade.core.errors import ConfigError, StateError
from cavalcade.policy.mlp import MlpSpec, forward
from cavalcade.policy.weights import weights_from


@pytest.mark.parametrize("hidden", [(64, 64), (32,), (16, 8, 4)])
def test_forward_is_that_of_ordinary_layers(hidden):
    spec = MlpSpec(7, 5, hidden, context=2)
    weights = spec.initial_weights([3, 4], torch.float64)
    x, context = torch.randn(2, 6, 7, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)
    logits, values = forward(spec, weights, x, context)
    named = spec.parameters(weights)
    for p in range(2):
        h = {net: torch.cat([x[p], context[p].expand(6, -1)], dim=1) for net in ("actor", "critic")}
        for net in h:
            for i in range(len(hidden) + 1):
                layer = torch.nn.functional.linear(h[net], named[f"{net}.{i}.weight"][p].T, named[f"{net}.{i}.bias"][p])
                h[net] = layer if i == len(hidden) else layer.tanh()
        torch.testing.assert_close(logits[p], h["actor"])
        torch.testing.assert_close(values[p], h["critic"][:, 0])


def test_initial_weights_are_orthogonal_and_depend_on_the_own_seed_alone():
    spec = MlpSpec(52, 145)
    together, alone = spec.initial_weights([1, 2, 3]), spec.initial_weights([2])
    assert torch.equal(together[1:2], alone)
    assert not torch.equal(together[0], together[1])
    w = spec.parameters(alone.double())["actor.1.weight"][0]
    torch.testing.assert_close(w @ w.T, 2 * torch.eye(64, dtype=torch.float64), atol=1e-5, rtol=0)
    assert spec.parameters(alone)["actor.2.weight"].abs().max() < 0.02  # nearly uniform at first
    assert all(not tensor.any() for name, tensor in spec.parameters(alone).items() if name.endswith("bias"))


def test_parameters_are_views_and_cover_all_but_the_padding():
    spec = MlpSpec(3, 5, (4,))
    weights = torch.zeros(2, spec.size)
    for tensor in spec.parameters(weights).values():
        tensor += 1
    assert weights.sum() == 2 * (3 * 4 + 4 + 4 * 5 + 5 + 3 * 4 + 4 + 4 + 1)


def test_weights_by_name_fit_or_are_refused():
    spec = MlpSpec(3, 5, (4,))
    weights = spec.initial_weights([0, 1])
    assert torch.equal(weights_from(spec, spec.parameters(weights), 2, torch.float32), weights)
    with pytest.raises(StateError, match="lacks actor"):
        weights_from(spec, {}, 2, torch.float32)
    with pytest.raises(StateError, match=r"actor.0.weight of the policy is \(2, 3, 4\); here it must be \(2, 3, 8\)"):
        weights_from(MlpSpec(3, 5, (8,)), spec.parameters(weights), 2, torch.float32)


@pytest.mark.parametrize("hidden", [(), (0,), (4, -1)])
def test_bad_widths(hidden):
    with pytest.raises(ConfigError, match="hidden is"):
        MlpSpec(3, 5, hidden)


def test_padding_stays_zero():
    spec = MlpSpec(3, 5, (4,))
    weights = spec.initial_weights([0])
    used = torch.zeros_like(weights)
    for tensor in spec.parameters(used).values():
        tensor += 1
    assert not weights[used == 0].any()
    assert np.prod(spec.padded_actions) % 16 == 0
