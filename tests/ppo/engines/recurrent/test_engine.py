import shutil

import numpy as np
import pytest
import torch

from cavalcade.config.recurrent import MachineConfig, RecurrentPPOConfig
from cavalcade.core.errors import ConfigError, StateError, TrainingError
from cavalcade.policy.heads import Choice
from cavalcade.ppo.advantage import gae
from cavalcade.ppo.auxiliary.statistics import Statistics
from cavalcade.ppo.draws import uniform_draws
from cavalcade.ppo.engines.recurrent.draw import Seen, Stored, store_and_draw
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.keys import environment_keys
from tests.ppo.engines.recurrent.toy import Cue, config, engine


def learner(env=None, **settings):
    settings = config(**settings)
    env = env or Cue(settings.ppo.num_envs, spread=3)
    env.reset()
    return engine(env, settings)


def weights(one):
    return {name: p.detach().clone() for name, p in one.policy.named_parameters()}


def assert_same_update(before, wanted, found):
    """Two learners that began with the same parameters moved each of them the same way and equally far."""
    for name, start in before.items():
        one, other = ((after[name] - start).flatten().double() for after in (wanted, found))
        assert float(one.norm()) > 0, name
        assert float(torch.cosine_similarity(one, other, dim=0)) > 0.99, name
        assert float(other.norm() / one.norm()) == pytest.approx(1, abs=0.05), name


def advance(one, updates=1):
    for _ in range(updates):
        one.collect()
        metrics = one.update(0.0)
    return metrics


@pytest.mark.parametrize("core", ["none", "lstm", "gru"])
@pytest.mark.parametrize("groups", [1, 2])
def test_segments_say_what_was_said_when_they_were_collected(core, groups):
    """States at the starts of segments, beginnings within them, and the order of time are right."""
    one = learner(Cue(16, spread=3, groups=groups), core=core)
    advance(one, 2)
    one.collect()
    batch = one.experience.take(torch.arange(one.experience.segments))
    out, _ = one.policy(batch.observation, batch.state, batch.begins)
    log_prob, _ = one.head.evaluate(out.logits, batch.mask, batch.action)
    torch.testing.assert_close(log_prob, batch.log_prob, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(out.values, batch.value, atol=1e-5, rtol=1e-4)
    assert batch.begins.any()


def test_groups_make_no_difference():
    one, other = (learner(Cue(16, spread=3, groups=1), core="lstm") for _ in range(2))
    other.env._groups = (slice(0, 8), slice(8, 16))
    for x in (one, other):
        x.env._rng = _Table()  # cues do not depend on who asks first
        x.env.reset()
        x.collect()
    assert torch.equal(one.experience.action, other.experience.action)
    torch.testing.assert_close(one.experience.log_prob, other.experience.log_prob)
    torch.testing.assert_close(one.experience.results.bootstrap, other.experience.results.bootstrap)


class _Table:
    def integers(self, low, high, count):
        return np.ones(count, np.int64)


def test_advantages_are_those_of_the_reference_and_time_running_out_is_no_end():
    one = learner(normalise_advantages=False, normalise_returns=False, gamma=0.9)
    one.collect()
    e, b = one.experience, one.experience.results
    assert float(b.bootstrap.abs().sum()) > 0
    one._advantages()
    gamma = torch.tensor([0.9])
    wanted, returns = gae(b.reward, e.by_time(e.value), b.ended, b.bootstrap, b.last_value, gamma, gamma * 0.95)
    torch.testing.assert_close(e.by_time(e.advantage), wanted)
    torch.testing.assert_close(e.by_time(e.returns), returns)


def test_vtrace_is_gae_as_long_as_the_policy_has_not_moved_and_differs_after():
    one = learner(normalise_advantages=False, vtrace=True, parts=1)
    one.collect()
    one._advantages()
    e = one.experience
    batch = e.take(torch.arange(e.segments))
    out, _ = one.policy(batch.observation, batch.state, batch.begins)
    advantage, returns = one._corrected(batch, out.logits)
    # λ-returns of whole rollouts look beyond a segment, those of V-trace stop at its end: compare last segments
    last = slice(-e.agents, None)
    torch.testing.assert_close(advantage[:, last], batch.advantage[:, last], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(returns[:, last], batch.returns[:, last], atol=1e-4, rtol=1e-3)
    moved, _ = one._corrected(batch, out.logits + torch.tensor([0.7, -0.7]))
    assert not torch.allclose(moved, advantage, atol=1e-2)


def test_memory_learns_what_no_memory_can():
    """The cue is seen once and asked for five steps later: chance is one half."""
    scores = {}
    for core in ("lstm", "none"):
        one = learner(
            Cue(64), agents=64, horizon=5, rounds=2, parts=2, core=core, epochs=4, learning_rate=5e-3, gamma=0.9,
            schedule="constant",
        )  # fmt: skip
        for _ in range(150):
            ended = one.collect()
            one.update(0.0)
        scores[core] = np.mean([one.collect().total.mean() for _ in range(3)])
        assert len(ended.total)
    assert scores["lstm"] > 0.95
    assert scores["none"] < 0.7


@pytest.mark.parametrize("pieces", [2, 4])
def test_an_accumulated_gradient_is_that_of_the_whole_minibatch(pieces):
    found = []
    for grad_accum in (1, pieces):
        one = learner(parts=1, grad_accum=grad_accum)
        one.collect()
        one._advantages()
        one._gradient(torch.arange(one.experience.segments), None)
        found.append([p.grad.clone() for p in one.policy.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_pieces_that_do_not_divide_and_tf32_without_a_gpu_are_refused():
    with pytest.raises(ConfigError, match=r"grad_accum is 3; it must divide the 2 segments"):
        RecurrentPPOConfig(batch_size=256, minibatch_size=128, bptt_horizon=64, grad_accum=3)
    with pytest.raises(ConfigError, match="tf32, which needs a GPU"):
        learner(machine=MachineConfig(precision="tf32"))


def raising(error):
    """A function that raises an error."""

    def function(*_):
        raise error

    return function


def no_memory():
    """What torch raises on this machine."""
    with pytest.raises(RuntimeError) as error:
        torch.empty(1 << 60, dtype=torch.uint8)
    return error.value


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError(), no_memory()])
def test_out_of_memory_once_goes_on_in_halves_and_twice_ends_with_advice(monkeypatch, error):
    one, other = learner(parts=1), learner(parts=1)
    real, calls = RecurrentEngine._backpropagate, []

    def failing(self, index, *given):
        calls.append(len(index))
        if len(index) > 16:
            raise error
        return real(self, index, *given)

    monkeypatch.setattr(RecurrentEngine, "_backpropagate", failing)
    advance(one)
    assert calls == [32, 16, 16]
    assert "in 2 pieces" in one.notes[0]
    monkeypatch.setattr(RecurrentEngine, "_backpropagate", real)
    advance(other)
    for a, b in zip(weights(one).values(), weights(other).values(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-3)
    monkeypatch.setattr(RecurrentEngine, "_backpropagate", raising(error))
    with pytest.raises(TrainingError, match="--minibatch-size"):
        advance(one)


def test_other_runtime_errors_are_not_taken_for_lack_of_memory(monkeypatch):
    monkeypatch.setattr(RecurrentEngine, "_backpropagate", raising(RuntimeError("shape mismatch")))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        advance(learner())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_a_saved_learner_goes_on_as_if_it_had_not_stopped(optimizer):
    one, other = learner(optimizer=optimizer), learner(optimizer=optimizer)
    advance(one, 2)
    policy, rest = ({k: v.clone() for k, v in part.items()} for part in one.tensors())
    other.load_tensors(policy, rest)
    other.experience, other._memory, other._begins = one.experience, one._memory, one._begins
    one.collect()
    one.update(0.3)
    other.update(0.3)
    assert other.state.updates == one.state.updates == 3
    for a, b in zip(weights(one).values(), weights(other).values(), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_network_is_refused():
    one = learner()
    policy, rest = one.tensors()
    with pytest.raises(StateError, match="lacks"):
        one.load_tensors({}, rest)
    with pytest.raises(StateError, match=r"actor\.weight"):
        one.load_tensors(policy | {"actor.weight": torch.zeros(3, 3)}, rest)


def test_muon_turns_hidden_matrices_and_learns():
    one = learner(optimizer="muon", core="none")
    before = weights(one)
    advance(one)
    step = (weights(one)["encoder.layer.weight"] - before["encoder.layer.weight"]).double()
    size = torch.linalg.svdvals(step)
    assert float(size[3] / size[0]) > 0.3  # nearly a rotation of what the gradient spans
    assert "optimizer.encoder.layer.weight.momentum_buffer" in one.tensors()[1]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_learns_about_the_same(precision):
    whole, lower = learner(), learner(machine=MachineConfig(device="cpu", precision=precision))
    if precision == "fp16":
        policy, rest = lower.tensors()
        lower.load_tensors(policy, rest | {"loss_scale": torch.tensor([1024.0])})  # the initial one skips a step
    before = weights(whole)
    advance(whole)
    metrics = advance(lower)
    assert all(p.dtype == torch.float32 for p in lower.policy.parameters())
    assert np.isfinite(metrics["grad_norm"]).all()
    assert torch.equal(whole.experience.action, lower.experience.action)
    assert_same_update(before, weights(whole), weights(lower))
    assert not torch.equal(weights(whole)["core.weight_hh_l0"], weights(lower)["core.weight_hh_l0"])


def test_a_step_that_overflows_is_skipped_and_the_loss_scale_shrinks():
    one = learner(parts=1, machine=MachineConfig(device="cpu", precision="fp16"))
    before, scale = weights(one), float(one.tensors()[1]["loss_scale"])
    metrics = advance(one)
    assert (metrics["skipped"][0], metrics["grad_norm"][0]) == (1, 0)
    assert all(torch.equal(before[name], after) for name, after in weights(one).items())
    assert float(one.tensors()[1]["loss_scale"]) == scale / 2
    assert advance(one)["skipped"][0] == 0
    assert not torch.equal(before["actor.weight"], weights(one)["actor.weight"])


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_networks_say_the_same():
    torch._dynamo.reset()
    plain = learner()
    compiled = learner(machine=MachineConfig(device="cpu", compile="default"))
    one, other = advance(plain), advance(compiled)
    assert one["value_loss"] == pytest.approx(other["value_loss"], rel=1e-3)
    assert plain.tensors()[0].keys() == compiled.tensors()[0].keys()


def test_draws_on_the_cpu_are_those_of_the_head():
    rng = np.random.default_rng(0)
    logits, mask = rng.standard_normal((500, 6)).astype(np.float32) * 3, rng.random((500, 6)) < 0.6
    mask[:, 2] = True
    keys = environment_keys([3], 600)
    action, log_prob = np.zeros(500, np.int32), np.zeros(500, np.float32)
    seen = Seen(rng.random((500, 9)), mask, rng.random(500) < 0.5, rng.random(500).astype(np.float32))
    for at in (0, 1):
        stored = Stored(np.zeros((600, 2, 7)), np.zeros((600, 2, 6), bool), np.ones((600, 2), bool), np.zeros((600, 2)))
        cut = np.zeros(3, np.int64)
        store_and_draw(cut, logits, seen, keys, 11, 100, stored, 100, at, action, log_prob)
        assert cut.sum() == 500
        assert (stored.observation[100:, at] == seen.observation[:, :7]).all()
        assert (stored.mask[100:, at] == mask).all()
        assert (stored.value[100:, at] == seen.value).all()
        assert (stored.begins[100:, at] == (seen.begins if at else False)).all()
        assert not stored.observation[:100].any()
        assert not stored.observation[:, 1 - at].any()
    draws = np.zeros((500, 1))
    uniform_draws(keys, np.array([11]), 100, draws)
    head, x, allowed = Choice(6), torch.from_numpy(logits), torch.from_numpy(mask)
    wanted = head.sample(x, allowed, torch.from_numpy(draws))
    assert (wanted.numpy() == action).all()
    np.testing.assert_allclose(log_prob, head.evaluate(x, allowed, wanted)[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("settings", [{"core": "lstm"}, {"core": "none", "grad_accum": 2}, {"vtrace": True}], ids=str)
def test_gradients_without_torchs_graph_are_those_of_the_graph(monkeypatch, settings):
    one = learner(**settings)
    one.collect()
    one.prepare(0.0)
    (index, weight), *_ = one.minibatches(0)
    found = []
    assert one._direct()
    for direct in (True, False):
        monkeypatch.setattr(one, "_direct", lambda direct=direct: direct)
        metrics = one._gradient_or_none(index, weight)
        found.append((metrics, {name: p.grad.clone() for name, p in one.policy.named_parameters()}))
    (metrics, mine), (wanted, reference) = found
    assert mine.keys() == reference.keys()
    for name, gradient in reference.items():
        assert float(gradient.norm()) > 0, name
        torch.testing.assert_close(mine[name], gradient, rtol=1e-6, atol=1e-9)
    for name, value in wanted.items():
        torch.testing.assert_close(metrics[name].view(1), value.view(1))


def test_an_auxiliary_loss_that_is_at_work_needs_the_graph():
    one = learner()
    one.auxiliary = [Statistics(2)]
    assert not one._direct()
    one.state.counters[:, 1] = 1
    assert one._direct()


def test_target_kl_stops_an_update():
    counts = []
    for limit in (0.0, 1e-4):
        one = learner(epochs=20, learning_rate=0.02, target_kl=limit, schedule="constant")
        calls = []
        for name in ("gradient", "step"):
            real = getattr(one, name)
            setattr(one, name, lambda *given, real=real, name=name, calls=calls: calls.append(name) or real(*given))
        advance(one)
        counts.append((calls.count("gradient"), calls.count("step")))
    assert counts[0] == (40, 40)
    assert counts[1][0] < 40
    assert counts[1][1] == counts[1][0] - 1  # the step that exceeded it is not taken
