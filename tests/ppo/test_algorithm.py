"""The one update loop, with an engine of plain numbers; then what real engines do at their KL limits."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.ppo.algorithm import learning_rates, named, optimise
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.objective import KL, KL_TOLERANCE, METRICS
from tests.ppo.engines.recurrent.test_engine import learner as recurrent_learner
from tests.ppo.toy import Toy

M = len(METRICS)


class Fake:
    """Policies whose metrics are told in advance: by minibatch (B, M, P), equal for all minibatches of an epoch or not.

    Writes down what is asked of it. The norm of a step is 10 times its learning rate.
    """

    leaves_early = True
    timer = None

    def __init__(self, told, target_kl, epochs=2, ranks=1, leaves_early=True):
        self.told, self.leaves_early = told, leaves_early
        self.config = SimpleNamespace(epochs=epochs, schedule="linear")
        self.hyper = SimpleNamespace(target_kl=np.array(target_kl), learning_rate=np.array([0.1, 0.2]))
        self.ranks = Ranks(size=ranks)
        self.asked, self.stepped, self.active, self.reduced = [], [], [], 0

    def minibatches(self, epoch):
        for b in range(len(self.told) // self.config.epochs):
            yield epoch * (len(self.told) // self.config.epochs) + b

    def gradient(self, batch, active):
        self.asked.append(batch)
        self.active.append(active.tolist())
        return np.where(active, self.told[batch], 0.0)

    def all_reduce(self, metrics):
        self.reduced += 1
        metrics *= 2

    def step(self, rates, active):
        self.stepped.append(active.tolist())
        return np.where(active, 10 * rates, 0.0)


def metrics(*kl):
    """Metrics of minibatches with the given KL divergences (B, P); the others count minibatches and policies."""
    told = np.arange(len(kl) * M * 2, dtype=float).reshape(len(kl), M, 2)
    told[:, KL] = kl
    return told


def run(fake):
    rates = np.array([0.1, 0.2])
    return optimise(fake, rates, fake.hyper.target_kl)


def test_metrics_and_norms_are_means_over_minibatches():
    told = metrics((0.1, 0.2), (0.3, 0.1), (0.0, 0.0), (0.5, 0.9))
    fake = Fake(told, [0.0, 0.0])
    means, norms = run(fake)
    assert fake.asked == [0, 1, 2, 3]
    assert fake.stepped == [[True, True]] * 4
    np.testing.assert_allclose(means, told.mean(0))
    np.testing.assert_allclose(norms, [1.0, 2.0])


def test_a_policy_past_its_limit_takes_no_further_step_while_another_goes_on():
    kl = 0.1 * KL_TOLERANCE
    told = metrics((0.1, 0.1), (1.01 * kl, 0.1), (0.0, 0.1), (0.0, 0.1))
    fake = Fake(told, [0.1, 0.1])
    means, norms = run(fake)
    assert fake.asked == [0, 1, 2, 3]
    assert fake.active == [[True, True], [True, True], [False, True], [False, True]]
    assert fake.stepped == [[True, True], [False, True], [False, True], [False, True]]  # the offending one included
    np.testing.assert_allclose(means[:, 0], told[:2, :, 0].mean(0))  # over the minibatches that it took part in
    np.testing.assert_allclose(means[:, 1], told[:, :, 1].mean(0))
    np.testing.assert_allclose(norms, [0.5, 2.0])


def test_a_limit_is_reached_only_beyond_the_tolerance_and_never_if_it_is_0():
    kl = 0.1 * KL_TOLERANCE
    fake = Fake(metrics((kl, 9.0), (kl, 9.0)), [0.1, 0.0], epochs=1)
    run(fake)
    assert fake.stepped == [[True, True]] * 2


def test_once_out_a_policy_stays_out():
    fake = Fake(metrics((9.0, 0.0), (0.0, 0.0), (0.0, 9.0), (0.0, 0.0)), [0.1, 0.0])
    run(fake)
    assert fake.stepped == [[False, True]] * 4


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_loop_ends_when_nobody_is_left(ranks):
    fake = Fake(metrics((9.0, 0.0), (0.0, 9.0), (0.0, 0.0), (0.0, 0.0)), [0.1, 0.1], ranks=ranks)
    means, norms = run(fake)
    assert fake.asked == [0, 1]
    assert fake.stepped == [[False, True]]
    assert np.isfinite(means).all()
    np.testing.assert_allclose(norms, [0.0, 1.0])


def test_a_loop_that_may_not_end_early_masks_instead():
    told = metrics((9.0, 9.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    fake = Fake(told, [0.1, 0.1], leaves_early=False)
    means, norms = run(fake)
    assert fake.asked == [0, 1, 2, 3]
    assert fake.stepped == [[False, False]] * 4
    np.testing.assert_allclose(means, told[0])
    np.testing.assert_allclose(norms, 0)


def test_without_limits_nothing_is_read_on_the_host():
    """The question whether anyone is left costs a read of the device: it is asked only if a limit is set."""

    class Asked(np.ndarray):
        def any(self, *args, **kwargs):
            raise AssertionError("asked")

    told = metrics((0.1, 0.1), (0.1, 0.1))
    for leaves_early, limit in ((True, [0.0, 0.0]), (False, [0.1, 0.1])):
        fake = Fake(told, limit, epochs=1, leaves_early=leaves_early)
        optimise(fake, np.array([0.1, 0.2]), np.array(limit).view(Asked))
        assert len(fake.stepped) == 2
    fake = Fake(told, [0.1, 0.1], epochs=1)
    with pytest.raises(AssertionError, match="asked"):
        optimise(fake, np.array([0.1, 0.2]), np.array([0.1, 0.1]).view(Asked))


def test_gradients_are_summed_over_ranks_only_if_there_are_several():
    told = metrics((0.1, 0.1), (0.1, 0.1))
    alone, several = Fake(told, [0.0, 0.0]), Fake(told, [0.0, 0.0], ranks=2)
    one, other = run(alone)[0], run(several)[0]
    assert (alone.reduced, several.reduced) == (0, 2)
    np.testing.assert_allclose(other, 2 * one)


def test_limits_count_for_the_sum_over_ranks():
    kl = 0.1 * KL_TOLERANCE
    told = metrics((0.6 * kl, 0.4 * kl), (0.0, 0.0))  # the fake ranks double it
    fake = Fake(told, [0.1, 0.1], ranks=2)
    run(fake)
    assert fake.stepped == [[False, True]] * 2


def test_learning_rates_fall_with_the_run():
    fake = Fake(metrics((0.0, 0.0)), [0.0, 0.0])
    np.testing.assert_allclose(learning_rates(fake, 0.25), [0.075, 0.15])
    np.testing.assert_allclose(learning_rates(fake, np.array([0.0, 1.0])), [0.1, 0.0])
    fake.config.schedule = "constant"
    np.testing.assert_allclose(learning_rates(fake, 0.25), [0.1, 0.2])


def test_metrics_have_names():
    means = np.arange(2.0 * M).reshape(M, 2)
    found = named(means, np.array([7.0, 8.0], np.float32), np.array([0.1, 0.2]))
    assert list(found) == [*METRICS, "grad_norm", "learning_rate"]
    assert found["kl"].tolist() == means[KL].tolist()
    assert found["grad_norm"].dtype == np.float64


def host_engine(kind, **given):
    env = Toy(6)
    config = PPOConfig(num_envs=6, rollout_steps=8, hidden=(8,), engine=kind, schedule="constant", **given)
    found, _ = make_engine(env, config, [0])
    env.reset()
    return found


def cuda_engine(**given):
    config = PPOConfig(num_envs=6, rollout_steps=20, hidden=(8,), schedule="constant", **given)
    env = Cage2(6, red="meander", horizon=10, seed=[0])
    env.reset()
    return CudaEngine(env, DeviceCage2(env, torch.device("cpu")), config, [0])


ENGINES = {
    "cpu": lambda **given: host_engine("cpu", minibatches=2, **given),
    "torch": lambda **given: host_engine("torch", minibatches=2, **given),
    "cuda": lambda **given: cuda_engine(minibatches=2, **given),
    "recurrent": lambda **given: recurrent_learner(parts=2, schedule="constant", **given),
}


def parameters(engine):
    return {name: tensor.clone() for name, tensor in engine.tensors()[0].items()}


def watched(engine):
    """Has an engine write down the KL divergence of each minibatch, and its weights after each step."""
    seen, gradient, step = [], engine.gradient, engine.step

    def watched_gradient(batch, active):
        found = gradient(batch, active)
        seen.append([float(found[KL][0]), False, None])
        return found

    def watched_step(rates, active):
        norms = step(rates, active)
        seen[-1][1:] = [bool(active[0]), parameters(engine)]
        return norms

    engine.gradient, engine.step = watched_gradient, watched_step
    return seen


@pytest.mark.parametrize("kind", ENGINES)
def test_no_step_is_taken_beyond_the_limit(kind):
    """The first minibatch is computed with the weights that acted, so that it never exceeds a limit."""
    limit = 1e-5
    free, held = (ENGINES[kind](epochs=6, learning_rate=0.02, target_kl=kl) for kl in (0.0, limit))
    seen = {}
    for engine in (free, held):
        assert engine.leaves_early == (kind != "cuda")
        engine.collect()
        seen[engine] = watched(engine)
        engine.update(0.0)
    whole, cut = seen[free], seen[held]
    first = next(i for i, (kl, _, _) in enumerate(whole) if kl > KL_TOLERANCE * limit)
    assert 0 < first < 11
    assert len(whole) == 12
    for (kl, _, after), (same, stepped, there) in zip(whole[:first], cut[:first], strict=True):
        assert same == kl
        assert stepped
        assert all(torch.equal(after[name], there[name]) for name in after)
    assert cut[first][0] > KL_TOLERANCE * limit
    assert not any(stepped for _, stepped, _ in cut[first:])
    assert len(cut) == (first + 1 if held.leaves_early else 12)
    for name, tensor in parameters(held).items():
        assert torch.equal(tensor, cut[first - 1][2][name]), name


@pytest.mark.parametrize("kind", ENGINES)
def test_an_update_without_any_step_changes_nothing_but_the_counters(kind):
    """A rollout whose probabilities are off from the start: the first minibatch exceeds the limit."""
    engine = ENGINES[kind](epochs=3, learning_rate=0.02, target_kl=1e-3)
    engine.collect()
    collected = engine.experience if kind == "recurrent" else engine.rollout
    collected.log_prob += 0.5
    before = parameters(engine)
    moments = {name: x.clone() for name, x in engine.tensors()[1].items() if "moment" in name or "optimizer" in name}
    metrics = engine.update(0.0)
    assert metrics["kl"][0] > KL_TOLERANCE * 1e-3
    assert metrics["grad_norm"][0] == 0
    assert engine.counters.updates == 1
    for name, tensor in parameters(engine).items():
        assert torch.equal(tensor, before[name]), name
    after = engine.tensors()[1]
    assert all(torch.equal(after[name], x) for name, x in moments.items())
    if kind != "recurrent":
        assert engine.state.adam_steps.tolist() == [0]
