"""Networks of one's own: shapes, seeds, populations, and that they learn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from cavalcade.config import PPOConfig
from cavalcade.core.contract import EnvSpec
from cavalcade.core.errors import ConfigError, StateError
from cavalcade.policy.heads import Choice
from cavalcade.policy.module import ModuleSpec, path_of
from cavalcade.policy.weights import weights_from
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.mlp_policy import MlpPolicy
from tests.ppo.toy import Toy


class Shared(nn.Module):
    """A trunk that actor and critic share, with layers that have no counterpart among the perceptrons."""

    def __init__(self, observation, outputs):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observation, 16), nn.LayerNorm(16), nn.ReLU())
        self.actor, self.critic = nn.Linear(16, outputs), nn.Linear(16, 1)
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        h = self.trunk(x)
        return self.actor(h) * self.temperature, self.critic(h).squeeze(-1)


class Normed(Shared):
    def __init__(self, observation, outputs):
        super().__init__(observation, outputs)
        self.norm = nn.BatchNorm1d(observation)


class TooManyActions(Shared):
    def __init__(self, observation, outputs):
        super().__init__(observation, outputs + 1)


class ValuesInColumns(Shared):
    def forward(self, x):
        logits, values = super().forward(x)
        return logits, values.unsqueeze(-1)


class NoValues(Shared):
    def forward(self, x):
        return super().forward(x)[0]


class InAList(Shared):
    def forward(self, x):
        return list(super().forward(x))


def module_of(spec, weights, p):
    """A module alone, with the weights of one policy."""
    found = spec.make(spec.inputs, spec.actions)
    named = {name: tensor[p] for name, tensor in spec.parameters(weights).items() if name != "log_deviation"}
    with torch.no_grad():
        for name, parameter in found.named_parameters():
            parameter.copy_(named[name].view(parameter.shape))
    return found


def test_weights_have_a_place_each():
    spec = ModuleSpec(Shared, 5, 3)
    module = Shared(5, 3)
    assert spec.size == sum(p.numel() for p in module.parameters())
    weights = torch.zeros(2, spec.size)
    named = spec.parameters(weights)
    assert list(named) == [name for name, _ in module.named_parameters()]
    for name, parameter in module.named_parameters():
        assert named[name].shape == (2, *(parameter.shape or (1,))), name
    for tensor in named.values():
        tensor += 1
    assert (weights == 1).all()
    assert torch.equal(weights_from(spec, named, 2, torch.float32), weights)


def test_deviations_follow_the_weights_of_the_module():
    spec = ModuleSpec(Shared, 5, 3, deviations=3)
    weights = spec.initial_weights([1, 2])
    assert spec.size == ModuleSpec(Shared, 5, 3).size + 3
    assert spec.parameters(weights)["log_deviation"].shape == (2, 3)
    weights[:, -3:] = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    logits, values = spec.forward(weights, torch.randn(2, 7, 5))
    assert (logits.shape, values.shape) == ((2, 7, 6), (2, 7))
    assert torch.equal(logits[:, :, 3:], weights[:, -3:].unsqueeze(1).expand(-1, 7, -1))


def test_initial_weights_are_the_modules_own_and_depend_on_the_own_seed_alone():
    spec = ModuleSpec(Shared, 5, 3)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    together, alone = spec.initial_weights([1, 2, 3]), spec.initial_weights([2])
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's draws change
    assert torch.equal(together[1:2], alone)
    assert not torch.equal(together[0], together[1])
    assert torch.equal(spec.initial_weights([1, 2, 3]), together)
    torch.manual_seed(2)
    for name, parameter in Shared(5, 3).named_parameters():
        assert torch.equal(spec.parameters(alone)[name].view(parameter.shape), parameter), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_population_is_each_module_called_alone(dtype):
    spec = ModuleSpec(Shared, 5, 3)
    weights = spec.initial_weights([1, 2, 3], dtype)
    weights += 0.1 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    x = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(2))
    logits, values = spec.forward(weights, x)
    assert (logits.shape, values.shape) == ((3, 7, 3), (3, 7))
    assert logits.dtype == values.dtype == dtype
    for p in range(3):
        wanted, value = module_of(spec, weights, p).to(dtype)(x[p].to(dtype))
        torch.testing.assert_close(logits[p], wanted)
        torch.testing.assert_close(values[p], value)
    assert not torch.allclose(logits[0], logits[1])


def test_gradients_stay_with_their_policies():
    spec = ModuleSpec(Shared, 5, 3)
    weights = spec.initial_weights([1, 2]).requires_grad_()
    x = torch.randn(2, 7, 5)
    logits, values = spec.forward(weights, x)
    (gradient,) = torch.autograd.grad(logits[1].square().sum() + values[1].sum(), weights)
    assert not gradient[0].any()
    one = module_of(spec, weights.detach(), 1)
    wanted, value = one(x[1])
    (wanted.square().sum() + value.sum()).backward()
    for name, parameter in one.named_parameters():
        torch.testing.assert_close(spec.parameters(gradient)[name][1].view(parameter.shape), parameter.grad)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (TooManyActions, r"TooManyActions returns \[\(2, 4\), \(2,\)\] for 2 observations; it must .* logits \(2, 3\)"),
        (ValuesInColumns, r"ValuesInColumns returns \[\(2, 3\), \(2, 1\)\]"),
        (NoValues, r"NoValues returns \['Tensor'\]"),
        (InAList, r"InAList returns \['list'\]"),
        (Normed, "Normed has buffers"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make, said):
    with pytest.raises(ConfigError, match=said):
        ModuleSpec(make, 5, 3)


def test_weights_of_another_network_are_refused():
    spec, wider = ModuleSpec(Shared, 5, 3), ModuleSpec(Shared, 6, 3)
    named = spec.parameters(spec.initial_weights([0]))
    for bad in ({}, wider.parameters(wider.initial_weights([0])), {n: x[:, None] for n, x in named.items()}):
        with pytest.raises(StateError, match=r"lacks|here it must be"):
            weights_from(spec, bad, 1, torch.float32)


def engine_of(policies=2, n=12, network=Shared, env=None, **given):
    env = env or Toy(n * policies)
    config = PPOConfig(num_envs=n, rollout_steps=10, learning_rate=0.02, **given)
    found, notes = make_engine(env, config, list(range(policies)), network=network)
    env.reset()
    return found, notes


def test_the_torch_engine_trains_it_and_says_so():
    engine, notes = engine_of()
    assert isinstance(engine, TorchEngine)
    assert notes == []
    assert engine.network()["module"] == path_of(Shared) == "tests.policy.test_module:Shared"
    assert engine.tensors()[0].keys() == dict(Shared(2, 3).named_parameters()).keys()
    with pytest.raises(ConfigError, match="engine is cpu with a custom network; it needs the torch engine"):
        engine_of(engine="cpu")
    with pytest.raises(ConfigError, match="NoValues returns"):
        engine_of(network=NoValues)


@pytest.mark.parametrize("given", [{}, {"minibatches": 3, "normalise_observations": True}, {"replay": 1}], ids=str)
def test_it_learns_the_game(given):
    engine, _ = engine_of(**given)
    before = engine.state.weights.clone()
    first = engine.collect().total.mean()
    for _ in range(30):
        engine.update(0.0)
        last = engine.collect().total.mean()
        assert (engine.rollout.action != 2).all()  # never allowed
    share = (engine.rollout.action == 1).float().mean((1, 2))
    assert (share > 0.95).all()
    assert last > first + 10
    changed = engine.spec.parameters(engine.state.weights - before)
    assert all(x[p].any() for x in changed.values() for p in range(2))  # every parameter of every policy moved


def test_policies_of_a_population_learn_as_they_would_alone():
    together, _ = engine_of(policies=2)
    env = Toy(12)
    alone = TorchEngine(env, together.config, [1], network=Shared)
    env.reset()
    for engine in (together, alone):
        for _ in range(3):
            engine.collect()
            engine.update(0.0)
    torch.testing.assert_close(together.state.weights[1:], alone.state.weights, atol=1e-5, rtol=1e-4)


class Points(Toy):
    """The same game, with points for actions."""

    def __init__(self, n):
        super().__init__(n)
        self.spec = EnvSpec("points", n, self.spec.observation_space, Box(-1, 1, (2,), np.float32))
        self.buffers = self.buffers._replace(action_mask=np.ones((n, 2), np.bool_))

    def send(self, actions):
        super().send((np.asarray(actions)[:, 0] > 0).astype(int))


def test_it_learns_with_points_for_actions():
    engine, _ = engine_of(policies=1, n=24, env=Points(24))
    assert engine.spec.deviations == 2
    for _ in range(30):
        engine.collect()
        engine.update(0.0)
    assert (engine.rollout.action[..., 0] > 0).float().mean() > 0.9
    assert engine.tensors()[0]["log_deviation"].any()


def test_a_trained_one_goes_on_from_a_snapshot():
    whole, _ = engine_of()
    first, _ = engine_of()
    second, _ = engine_of()
    for engine, updates in ((whole, 4), (first, 2)):
        for _ in range(updates):
            engine.collect()
            engine.update(0.0)
    second.restore(first.snapshot())
    for _ in range(2):
        second.collect()
        second.update(0.0)
    assert torch.equal(second.state.weights, whole.state.weights)


class Forbids:
    """An order that leaves no other action than the first."""

    by_truth = False

    def __call__(self, env):
        mask = env.buffers.action_mask.copy()
        self.restrict(env.buffers.observation, mask)
        return mask

    def restrict(self, observation, mask):
        mask[:, 1:] = False


def test_it_plays_and_keeps_to_the_mask_of_an_order():
    engine, _ = engine_of()
    for _ in range(15):
        engine.collect()
        engine.update(0.0)
    weights = engine.state.weights.numpy()
    shift, scale = np.zeros((2, 2)), np.ones((2, 2))
    free = MlpPolicy(Path("run"), None, 15, Choice(3), engine.spec, weights, np.zeros((2, 0)), shift, scale, np.ones(2))
    bound = MlpPolicy(
        Path("run"),
        None,
        15,
        Choice(3),
        engine.spec,
        weights,
        np.zeros((2, 0)),
        shift,
        scale,
        np.ones(2),
        mask=Forbids(),
    )
    env = Toy(24)
    env.reset()
    observation = env.buffers.observation[:12]
    assert (free[0](observation) == 1).all()
    assert (free.runner()(env) == 1).all()
    assert (bound[0](observation) == 0).all()
    assert (bound.runner()(env) == 0).all()
    assert (bound.runner(1, greedy=False)(env) == 0).all()
