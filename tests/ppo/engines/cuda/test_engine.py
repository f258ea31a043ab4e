"""The cuda engine on the CPU, where its kernels are loops: held to the torch engine."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.ppo.engines.cuda.engine import CudaEngine, check
from cavalcade.ppo.engines.torch import TorchEngine
from tests.ppo.engines.recurrent.test_engine import assert_same_update

CPU = torch.device("cpu")
HIDDEN = (16, 12)


def pair(policies=2, n=6, horizon=10, steps=20, env=None, extras=(), dtype="uint8", **given):
    """A cuda engine and a torch engine, on equal games."""
    config = PPOConfig(num_envs=n, rollout_steps=steps, hidden=HIDDEN, epochs=2, engine="torch", **given)
    options = {"red": "meander", "horizon": horizon, "seed": list(range(policies)), "extras": extras, "dtype": dtype}
    envs = [env() if env else Cage2(policies * n, **options) for _ in range(2)]
    for one in envs:
        one.reset()
    seeds = list(range(policies))
    engine = CudaEngine(envs[0], DeviceCage2(envs[0], CPU), replace(config, engine="auto"), seeds)
    return engine, TorchEngine(envs[1], config, seeds)


def compare(engine, plain, tolerance=2e-5):
    r, p = engine.rollout, plain.rollout
    assert torch.equal(r.action, p.action)
    assert torch.equal(r.ended, p.ended)
    torch.testing.assert_close(r.reward, p.reward)
    torch.testing.assert_close(r.bootstrap * r.ended, p.bootstrap * p.ended, atol=1e-4, rtol=1e-4)
    for name in ("log_prob", "value", "advantage", "returns"):
        torch.testing.assert_close(getattr(r, name), getattr(p, name), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(engine.state.weights, plain.state.weights, atol=tolerance, rtol=1e-3)
    for name in ("return_sum", "return_mean", "return_square", "episode_return", "adam_steps"):
        torch.testing.assert_close(getattr(engine.state, name), getattr(plain.state, name))


@pytest.mark.parametrize(
    "given",
    [
        {}, {"timeout_is_terminal": True}, {"value_clip": 0.2},
        {"normalise_returns": False, "normalise_advantages": False}, {"steps": 10}, {"steps": 5},
        {"extras": ("scans", "decoys", "action", "time"), "dtype": "float32"},
        {"policies": 1}, {"grad_clip": 0.0, "entropy_coef": 0.1},
    ],
)  # fmt: skip
def test_it_is_the_torch_engine(given):
    engine, plain = pair(**given)
    for update in range(3):
        mine, theirs = engine.collect(), plain.collect()
        np.testing.assert_allclose(np.sort(mine.total), np.sort(theirs.total), atol=1e-5)
        one, other = engine.update(update / 3), plain.update(update / 3)
        for name in ("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "grad_norm", "learning_rate"):
            np.testing.assert_allclose(one[name], other[name], atol=2e-4, rtol=2e-3, err_msg=name)
        compare(engine, plain)


def workflow_games():
    env = WorkflowCage2(12, red="bline", horizon=10, timeout_is_terminal=False)
    env.reset()
    for i, order in enumerate([(0, 1, 2, 3, 4), (4, 3, 2, 1, 0)]):
        rows = slice(6 * i, 6 * i + 6)
        env.assign(rows, order=order, seed=i, alignment="delta", weight=10.0)
    return env


def test_games_with_orders_are_the_same_and_their_statistics_are_told():
    config = PPOConfig(num_envs=6, rollout_steps=20, hidden=HIDDEN, epochs=1, engine="torch")
    envs = [workflow_games(), workflow_games()]
    engine = CudaEngine(envs[0], DeviceCage2(envs[0], CPU), replace(config, engine="auto"), [0, 1])
    plain = TorchEngine(envs[1], config, [0, 1])
    for _ in range(2):
        mine, theirs = engine.collect(), plain.collect()
        engine.update(0.0)
        plain.update(0.0)
        order = [np.lexsort((np.arange(len(x.total)), x.environment, x.policy)) for x in (mine, theirs)]
        for name in ("policy", "environment", "total", "length", "episode_stats", "kind"):
            a, b = (np.asarray(getattr(x, name))[o] for x, o in zip((mine, theirs), order, strict=True))
            np.testing.assert_allclose(a, b, atol=1e-5, err_msg=name)
        compare(engine, plain)


def test_minibatches_are_shares_of_the_environments_in_a_new_order_each_time():
    engine, _ = pair(n=8, minibatches=2)
    words = engine.rollout.words.flatten(0, 2)
    seen = set()
    for update in range(2):
        engine.collect()
        for epoch in range(2):
            s, b = engine._sorted.of(epoch), engine._sorted.size
            assert b == 20 * 4
            for part in range(4):  # two minibatches of two policies
                m, p = divmod(part, 2)
                at = slice((2 * m + p) * b, (2 * m + p + 1) * b)
                sample, row = s.sample[at].long(), s.row[at].long()
                envs = (sample % 8).unique()
                assert len(envs) == 4
                expected = (p * 20 + torch.arange(20)).unsqueeze(1) * 8 + envs
                assert torch.equal(sample.sort().values, expected.flatten().sort().values)
                assert row[0] == 0
                assert set(row.diff().tolist()) <= {0, 1}
                first = torch.searchsorted(row, row)  # the first sample of each one's row
                assert torch.equal(words[sample], words[sample[first]])
                assert len(words[sample].unique(dim=0)) == row[-1] + 1
                assert row[-1] < engine._room == engine._made[engine._room].words.shape[1]
                if part == 0:
                    seen.add(tuple(envs.tolist()))
        engine.update(update / 2)
    assert len(seen) > 1


def test_two_halves_make_the_gradient_of_the_whole():
    engine, _ = pair(n=8)
    halves, _ = pair(n=8, minibatches=2)
    for one in (engine, halves):
        one.collect()
        one.prepare(0.0)
    engine._minibatch(0, 0)
    parts = []
    for m in range(2):
        halves._minibatch(0, m)
        parts.append(halves._gradient.clone())
    torch.testing.assert_close(sum(parts) / 2, engine._gradient, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("given", [{}, {"minibatches": 3}, {"grad_accum": 2, "value_clip": 0.1}])
@pytest.mark.parametrize("real", [torch.float32, torch.float64])
def test_distinct_rows_have_the_gradient_of_all_samples(given, real):
    found = []
    for dedup in ("on", "off"):
        env = Cage2(12, red="bline", horizon=10, seed=[0, 1])
        env.reset()
        config = PPOConfig(num_envs=6, rollout_steps=20, hidden=HIDDEN, epochs=2, dedup=dedup, **given)
        engine = CudaEngine(env, DeviceCage2(env, CPU), config, [0, 1], dtype=real)
        engine.collect()
        engine.prepare(0.0)
        engine._minibatch(1, given.get("minibatches", 1) - 1)
        found.append((engine._gradient.clone(), engine._share))
    (mine, few), (plain, all_of_them) = found
    assert few < 0.5 < all_of_them == 1.0
    assert (mine - plain).norm() <= (1e-10 if real == torch.float64 else 1e-4) * plain.norm()


def test_out_of_memory_makes_smaller_pieces(monkeypatch):
    engine, plain = pair(n=8)
    allocate, tried = engine._allocate_piece, []

    def fails_once(rows):
        tried.append(rows)
        if len(tried) == 1:
            raise torch.OutOfMemoryError
        return allocate(rows)

    monkeypatch.setattr(engine, "_allocate_piece", fails_once)
    for one in (engine, plain):
        one.collect()
        one.update(0.0)
    assert engine._pieces == 2
    assert engine.notes == ["out of memory: minibatches are computed in 2 pieces"]
    compare(engine, plain)


def test_buffers_of_the_latest_two_sizes_are_kept():
    engine, _ = pair(n=32, steps=40, horizon=20)
    engine._forget_pieces()
    for rows, kept in ((100, [256]), (300, [256, 512]), (200, [512, 256]), (900, [256, 1024]), (5000, [1024, 1280])):
        engine._make_room(rows)
        assert list(engine._made) == kept
        assert engine._room == kept[-1]
    assert engine._sorted.size == 1280


def test_metrics_are_where_the_graph_of_any_size_writes_them():
    engine, _ = pair()
    places = set()
    for rows in (100, 1000):
        engine.collect()
        engine._make_room(rows)
        engine.update(0.0)
        places.add(tuple(x.data_ptr() for x in engine._means))
    assert len(places) == 1


def test_a_policy_past_its_limit_sits_out_the_rest():
    engine, plain = pair(target_kl=1e-9)
    for one in (engine, plain):
        one.collect()
        one.update(0.0)
    assert torch.equal(engine.state.adam_steps, plain.state.adam_steps)
    torch.testing.assert_close(engine.state.weights, plain.state.weights, atol=2e-5, rtol=1e-3)


def test_a_saved_learner_goes_on_as_if_it_had_not_stopped():
    one, _ = pair()
    one.collect()
    one.update(0.0)
    other, _ = pair()
    other.restore(one.snapshot())
    for learner in (one, other):
        learner.collect()
        learner.update(0.5)
    assert torch.equal(one.state.weights, other.state.weights)


def test_bf16_products_are_near():
    whole, _ = pair()
    other, _ = pair()  # games of its own
    low = CudaEngine(other.env, other.games, other.config, other.seeds, precision="bf16")
    before = by_policy(whole)
    for one in (whole, low):
        one.collect()
        one.update(0.0)
    assert torch.equal(low.rollout.action, whole.rollout.action)
    torch.testing.assert_close(low.rollout.value, whole.rollout.value, atol=0.01, rtol=0.02)
    assert_same_update(before, by_policy(whole), by_policy(low))
    assert not torch.equal(low.state.weights, whole.state.weights)


def by_policy(learner):
    named = learner.spec.parameters(learner.state.weights).items()
    return {f"{name} of policy {p}": x.clone() for name, rows in named for p, x in enumerate(rows)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"normalise_observations": True}, "normalise_observations"), ({"replay": 1}, "replay"),
        ({"minibatches": 4}, "4 minibatches"), ({"rollout_steps": 15}, "multiple"),
        ({"engine": "torch"}, "engine is torch"),
    ],
)  # fmt: skip
def test_what_it_has_not_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        check(PPOConfig(**{"num_envs": 6, "rollout_steps": 20} | given), horizon=10)


def test_masked_repairs_are_never_drawn():
    """With orders that bind, every action of a rollout is one that the batch allows, as with the torch engine."""

    def env():
        made = WorkflowCage2(12, red="bline", horizon=100)
        for p in range(2):
            made.assign(slice(6 * p, 6 * p + 6), order=None, seed=p, mask="mask")
        return made

    engine, plain = pair(env=env, steps=100, horizon=100)
    for one in (engine, plain):
        for p in range(2):
            one.env.assign(slice(6 * p, 6 * p + 6), order=None, seed=p, mask="mask")
    engine.refresh()
    engine.collect()
    plain.collect()
    assert torch.equal(engine.rollout.action, plain.rollout.action)
    mask = plain.rollout.mask
    assert mask.gather(-1, engine.rollout.action.long().unsqueeze(-1)).all()
    assert (~mask[..., 132:]).any()
