"""Recurrent policies on rows of values and pixels: memory, masks, continuous actions, and resuming."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from cavalcade.config import PPOConfig, WorkerConfig
from cavalcade.config.memory import MemoryConfig
from cavalcade.core.errors import ConfigError
from cavalcade.core.images import ImageLayout
from cavalcade.envs.cage2 import Cage2
from cavalcade.policy.recurrent import seeded
from cavalcade.policy.rows import RowLayout, RowPolicy
from cavalcade.ppo.engine import head_of
from cavalcade.ppo.engines.recurrent.rows import RowEngine
from cavalcade.ppo.engines.recurrent.runner import RecurrentRunner
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source

CPU = torch.device("cpu")
STEPS = 5


class Recall(gymnasium.Env):
    """A cue of two is shown in the first step; naming it in the last is worth 1. Action 2 is never allowed."""

    observation_space = Box(0, 1, (3,), np.float32)
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.clock = int(self.np_random.integers(2)), 0
        return self._show()

    def _show(self):
        shown = np.array([self.clock == 0 and self.cue == k for k in (0, 1)] + [self.clock / STEPS], np.float32)
        return shown, {"action_mask": np.array([True, True, False])}

    def step(self, action):
        assert action < 2, "masked"
        self.clock += 1
        last = self.clock == STEPS
        reward = float(last and action == self.cue)
        shown, info = self._show()
        return shown, reward, last and self.cue == 0, last, info


gymnasium.register("Recall-v0", entry_point=f"{__name__}:Recall")


def learner(name="Recall-v0", memory="lstm", image=None, num_envs=8, normalise=False, **given):
    ppo = PPOConfig(**{"num_envs": num_envs, "rollout_steps": 10, "minibatches": 2, "hidden": (16,)} | given)
    config = MemoryConfig(memory=memory)
    if name == "cage2":
        env = Cage2(num_envs, red="meander", horizon=15, seed=[3])
    else:
        env = Hosted(gym_source(name), num_envs, WorkerConfig(backend="serial"))
    env.reset()
    head, dtype = head_of(env), torch.from_numpy(env.buffers.observation).dtype
    layout = RowLayout(env.buffers.observation.shape[1], dtype, image)
    policy = seeded(
        0, lambda: RowPolicy(layout, head.outputs, core=memory, hidden=ppo.hidden, deviations=head.deviations)
    )
    return RowEngine(env, policy, config.ppo(ppo), normalise=normalise, device=CPU)


def advance(one, updates=1):
    for _ in range(updates):
        one.collect()
        metrics = one.update(0.0)
    return metrics


@pytest.mark.parametrize("memory", ["lstm", "none"])
def test_memory_recalls_what_no_memory_can(memory):
    """Chance is one half; the masked action is never taken."""
    one = learner(
        memory=memory, num_envs=32, epochs=4, learning_rate=1e-2, gamma=0.9, schedule="constant", entropy_coef=0.0
    )
    for _ in range(60):
        one.collect()
        one.update(0.0)
    score = np.concatenate([one.collect().total for _ in range(3)]).mean()
    assert score > 0.95 if memory == "lstm" else score < 0.7


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_resuming_cage2_is_exact(memory):
    """Rollouts end within episodes: the states of games in progress are part of a snapshot."""
    whole, first, second = (learner("cage2", memory) for _ in range(3))
    advance(whole, 4)
    advance(first, 2)
    advance(second)  # was somewhere else
    second.restore(first.snapshot())
    advance(second, 2)
    one, other = whole.snapshot(), second.snapshot()
    assert one.counters == other.counters
    for mine, theirs in ((one.policy, other.policy), (one.learner, other.learner)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert {"memory.0", "begins"} <= one.learner.keys()


def test_masked_actions_of_cage2_are_never_taken():
    one = learner("cage2", num_envs=16)
    one.collect()
    e = one.experience
    assert e.mask.gather(-1, e.action.long().unsqueeze(-1)).all()
    assert not e.mask.all()


@pytest.mark.parametrize(("name", "image"), [("Pendulum-v1", None), ("cavalcade/Catch-v0", ImageLayout((16, 16, 3)))])
def test_segments_say_what_was_said_when_they_were_collected(name, image):
    one = learner(name, image=image, normalise=True)
    assert np.isfinite(advance(one, 2)["grad_norm"]).all()
    one.collect()
    batch = one.experience.take(torch.arange(one.experience.segments))
    out, _ = one.policy(batch.observation, batch.state, batch.begins)
    log_prob, _ = one.head.evaluate(out.logits, batch.mask, batch.action)
    torch.testing.assert_close(log_prob, batch.log_prob, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(out.values, batch.value, atol=1e-4, rtol=1e-3)
    assert (float(one.state.observation_count) > 0) == (image is None)
    assert batch.observation.dtype == (torch.uint8 if image else torch.float32)


def test_a_runner_forgets_between_episodes_and_batches():
    one = learner()
    runner = RecurrentRunner(one.policy, one.head, greedy=True)
    runner(one.env)
    assert all(float(s.abs().sum()) > 0 for s in runner._memory)
    other = learner().env
    seen = torch.from_numpy(other.buffers.observation)[None]
    with torch.no_grad():
        _, fresh = one.policy(seen, one.policy.initial_state(8), np.zeros((1, 8), np.bool_))
    runner(other)
    torch.testing.assert_close(runner._memory, fresh)


@pytest.mark.parametrize(
    ("memory", "ppo", "said"),
    [
        ({"memory": "none", "bptt_horizon": 5}, {}, "bptt_horizon is 5 without memory; choose --memory lstm or gru"),
        ({"bptt_horizon": 30}, {}, "rollout_steps 100 do not divide into bptt_horizon 30"),
        ({}, {"minibatches": 4}, "50 environments × 1 segments of 100 steps do not divide into 4 minibatches"),
        ({}, {"replay": 2}, "replay is 2 with memory lstm"), ({}, {"engine": "cpu"}, "engine is cpu with memory lstm"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(memory, ppo, said):
    with pytest.raises(ConfigError, match=said):
        MemoryConfig(**{"memory": "lstm"} | memory).ppo(replace(PPOConfig(), **ppo))
