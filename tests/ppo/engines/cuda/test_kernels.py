"""The kernels of the cuda engine: in Numba's simulator of CUDA, and on a real GPU where there is one."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.device_games import DeviceCage2
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.ppo.engines.cuda.ops import Ops
from tests.ppo.engines.cuda.test_engine import workflow_games

ROOT = Path(__file__).parents[4]

# Runs with the JIT disabled, so that rows, loops and kernels are plain Python.
SCRIPT = """
import numpy as np
from cavalcade.envs.cage2 import cuda as games
from cavalcade.envs.cage2 import device_games
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.ppo.objective import Coefficients
from cavalcade.ppo.engines.cuda import kernels, loops
from cavalcade.ppo.engines.cuda.row_loss import GROUP, Experience, Sorted
from cavalcade.ppo.engines.cuda.sample import Returned
from cavalcade.policy.mlp import NETS, MlpSpec

rng = np.random.default_rng(0)
f32, i64 = np.float32, np.int64
policies, steps, n, actions, m = 2, 3, 4, 7, 2
layout = np.array([-1, -1, 0, 1, 64, 65, -1], np.int8)


def copies(args):
    return [type(a)(*copies(a)) if isinstance(a, Returned) else np.array(a) if isinstance(a, np.ndarray) else a
            for a in args]


def arrays(args):
    flat = [x for a in args for x in (a if isinstance(a, Returned) else [a])]
    return [x for x in flat if isinstance(x, np.ndarray)]


def both(name, count, *args, there=kernels, here=loops, grid=(1, 64)):
    one, other = copies(args), copies(args)
    getattr(here, name)(count, *one)
    getattr(there, name)[grid](count, *other)
    for a, b in zip(arrays(one), arrays(other)):
        assert np.allclose(a, b, atol=1e-6) if name == "evaluate" else np.array_equal(a, b), name
    assert any(not np.array_equal(a, b) for a, b in zip(arrays(args), arrays(other))), name


shape = (policies, steps, n)
real = lambda *s: rng.standard_normal(s).astype(f32)
masks = rng.integers(0, 4, (policies * n, 2)).astype(i64)
keys = rng.integers(0, 2**63, policies * n).astype(np.uint64)
row = rng.integers(0, 5, policies * n).astype(np.int32)
both("draw", policies * n, layout, actions, real(5, actions + 1), real(5), row, masks, keys, np.array([5, 9]), 1,
     np.zeros(policies * n, np.int32), np.zeros(shape, np.int32), np.zeros(shape, f32), np.zeros(shape, f32),
     np.zeros((*shape, 1), np.int32))
both("greedy", policies * n, layout, actions, real(policies * n, actions + 1), masks, np.zeros(policies * n, np.int32))
over = rng.random(policies * n) < 0.5
seen = rng.integers(0, 2, (policies * n, 2)).astype(i64)


def returned():
    return Returned(seen, real(policies * n), over, np.zeros((policies * steps * n, 2), i64), np.zeros(shape, f32),
                    np.zeros(shape, bool), rng.random((policies, n)), np.zeros((policies, 1, n)))


both("keep", policies * n, 2, 0, returned())
ended = rng.random(shape) < 0.3
both("discount", policies * n, real(*shape), ended, np.array([0.9, 0.8]), rng.random((policies, n)), np.zeros(shape))
both("shuffle_key", policies * n, keys[:policies], np.array([3, 8]), 1, np.zeros((policies, n), i64))
both("gae", policies * n, real(*shape), real(*shape), ended, real(*shape), real(policies, n), np.ones(policies, f32),
     np.full(policies, 0.9, f32), np.full(policies, 0.8, f32), np.zeros(shape, f32), np.zeros(shape, f32))
words = rng.integers(0, 2, (policies * steps * n, 2)).astype(i64)
total, samples = policies * steps * n, steps * n
both("row_key", total, words, samples, 1, np.zeros(total, i64))
order = np.concatenate([rng.permutation(samples), samples + rng.permutation(samples)])
both("begins", total, order, words, samples, np.zeros(total, np.int32))
place = np.array([[3, 1, 0, 2], [0, 2, 1, 3]])
both("minibatch_of", total, order, place, m, steps, np.zeros(total, np.uint8))
rows = np.arange(total, dtype=np.int32) // 3
b = samples // m
both("begins_again", total, order, rows, order, b, np.zeros(total, np.int32), np.zeros(total, np.int32))
both("row_number", total, rows, b, np.zeros(total, np.int32))
many = 6 * GROUP
s = Sorted(rng.integers(0, total, policies * many).astype(np.int32),
           np.tile(np.sort(np.r_[np.arange(5), np.full(many - 5, 2)]), policies).astype(np.int32))
both("take_row", policies * many, s, 0, many, words, np.zeros((policies, 5, 2), i64), grid=(6, 64))
c = Coefficients(*(np.full(policies, x, f32) for x in (0.2, 0.5, 0.01, 0.1)))
x = Experience(rng.integers(64, 128, (total, 1)).astype(np.int32), rng.integers(5, 7, total).astype(np.int32),
               -abs(real(total)), real(total), real(total), real(total))
size = 2
chunks = policies * many // size
logits, values = real(policies, 5, actions + 1), real(policies, 1, 5)
d_logits, d_values, terms = np.zeros_like(logits), np.zeros_like(values), np.zeros((5, chunks), f32)
parts, sums = np.zeros((2 * chunks, actions + 1), f32), np.zeros((chunks // GROUP + 2, actions + 1), f32)
both("chunk", chunks, actions, many, size, c, 0, s, x, logits, values, d_logits, d_values, parts, terms,
     grid=(chunks // 64 + 1, 64))
parts = real(*parts.shape)
both("gather", policies * 3 * (actions + 1), actions, many, size, 0, s, parts, sums)
both("join", chunks * (actions + 1), actions, many, size, 0, s, parts, real(*sums.shape), d_logits, d_values,
     grid=(chunks * (actions + 1) // 64 + 1, 64))
both("adam", policies * 9, real(policies, 9), real(policies, 9), real(policies, 9), abs(real(policies, 9)),
     np.array([1, 4]), real(policies), np.array([0, 0.5], f32), abs(real(policies)), np.array([True, False]))
both("find", policies * n, 1, -1, returned(), np.full((policies, 32), -1, np.int32), np.zeros((policies, n), np.int32),
     np.zeros(policies, np.int32), np.zeros(policies * n, np.int32))
spec = MlpSpec(6, actions, (4, 4))
layers = np.array([[[y.weight, y.bias, y.fan_in, y.columns, y.fan_out] for y in spec.layers(k)] for k in NETS])
fresh = np.array([[2, 0, 1, 3], [1, 3, 0, 0]], np.int32)
places = np.array([[0, 0], [3, 0], [64, 0], [67, 0], [64, 50], [1, 0]], np.int32)
shown = rng.integers(0, 100, (policies, n, 2)).astype(i64)
both("unpack", policies * n, shown, places, np.zeros((policies, 2, 6, n), f32))
both("evaluate", 4, layers, real(policies, spec.size), shown, places, 1, steps, fresh,
     np.array([4, 2], np.int32), np.zeros((total, actions + 1), f32), np.zeros(total, f32), grid=(4, 8))
env = WorkflowCage2(4, red="bline", horizon=5)
env.reset()
other = WorkflowCage2(4, red="bline", horizon=5)
other.reset()
for one in (env, other):
    for e, how in enumerate(("mask", "mask", "mask-true", "none")):
        one.assign(slice(e, e + 1), order=None, seed=e, mask=how, alignment="cost", weight=2.0)
for t in range(12):
    chosen = rng.integers(0, 145, 4).astype(np.int32)
    for one, step in ((env, device_games.step_workflow), (other, games.step_workflow[1, 64])):
        step(4, one.state, one.params, chosen, one._outputs, one.track, one.settings, one.episode_stats)
    for record in ("state", "track", "_outputs"):
        for a, b in zip(getattr(env, record), getattr(other, record)):
            assert np.array_equal(a, b), (t, record)
    assert np.array_equal(env.episode_stats, other.episode_stats, equal_nan=True)
print("equal")
"""


def test_kernels_are_the_rows():
    env = os.environ | {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, check=False, env=env, cwd=ROOT
    )
    assert done.stdout == "equal\n", done.stderr


def test_packed_games_with_orders_are_the_plain_ones():
    plain, packed = workflow_games(), DeviceCage2(workflow_games(), torch.device("cpu"))
    rng = np.random.default_rng(0)
    for _ in range(35):
        actions = rng.integers(0, 145, 12)
        plain.step(actions)
        packed.actions.copy_(torch.from_numpy(actions))
        packed.step()
        for name in ("words", "mask_words", "reward", "truncated"):
            assert (getattr(plain._outputs, name) == getattr(packed, name).numpy()).all(), name
        if plain.buffers.truncated.any():
            np.testing.assert_array_equal(plain.episode_stats, packed.episode_stats.numpy())
            assert (plain._outputs.final_words == packed.final_words.numpy()).all()
    values = torch.zeros(2, 2, plain.buffers.observation.shape[1], 6)
    Ops(torch.device("cpu")).unpack(packed.words.view(2, 6, -1), packed.value_places, values)
    for net in range(2):
        found = values[:, net].transpose(1, 2).reshape(12, -1)
        np.testing.assert_array_equal(found.numpy(), plain.buffers.observation)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def learners(precision="fp32", **given):
    """The same learner on the CPU and on a GPU."""
    config = PPOConfig(
        **{"num_envs": 64, "rollout_steps": 50, "hidden": (32, 32), "epochs": 2, "minibatches": 2} | given
    )
    found = []
    for device in ("cpu", "cuda"):
        env = Cage2(3 * config.num_envs, red="meander", horizon=50, seed=[0, 1, 2])
        env.reset()
        games = DeviceCage2(env, torch.device(device))
        found.append(CudaEngine(env, games, config, [0, 1, 2], precision=precision))
    return found


@gpu
def test_a_gpu_learns_the_same():
    here, there = learners()
    for update in range(4):  # plainly, while a graph is recorded, and by replaying it
        mine, theirs = here.collect(), there.collect()
        same = (here.rollout.action == there.rollout.action.cpu()).float().mean()
        assert same > 0.999 if update < 2 else same > 0.9  # one action that rounding decides changes a game
        if update == 0:
            np.testing.assert_allclose(np.sort(mine.total), np.sort(theirs.total), atol=1e-3)
        one, other = here.update(update / 4), there.update(update / 4)
        if update < 2:
            for name in ("policy_loss", "value_loss", "entropy", "kl"):
                np.testing.assert_allclose(one[name], other[name], rtol=0.05, atol=2e-3, err_msg=name)
            torch.testing.assert_close(here.state.weights, there.state.weights.cpu(), atol=5e-3, rtol=0.05)


@gpu
def test_a_graph_does_what_its_work_does():
    _, one = learners()
    _, other = learners()
    other._run = lambda name, work: work()
    for _ in range(4):
        for x in (one, other):
            x.collect()
            x.update(0.0)
    assert torch.equal(one.rollout.action, other.rollout.action)
    torch.testing.assert_close(one.state.weights, other.state.weights, atol=1e-5, rtol=1e-4)


@gpu
def test_a_saved_learner_goes_on_as_if_it_had_not_stopped_on_a_gpu():
    _, one = learners()
    for _ in range(3):
        one.collect()
        one.update(0.0)
    _, other = learners()
    other.restore(one.snapshot())
    for x in (one, other):
        x.collect()
        x.update(0.5)
    assert torch.equal(one.rollout.action, other.rollout.action)
    torch.testing.assert_close(one.state.weights, other.state.weights, atol=1e-6, rtol=1e-5)
