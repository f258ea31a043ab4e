"""The hidden state as observation values, and who may see it."""

import numpy as np
import pytest

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scenario import MIXED, NUM_HOSTS
from cavalcade.envs.cage2.state import host_bits
from cavalcade.envs.cage2.truth import TRUTH_BITS, TRUTH_VALUES


def played(steps=25, **options):
    """Games in which Red has had time to get somewhere."""
    env = Cage2(30, red="mixed", seed=4, **options)
    env.reset()
    for _ in range(steps):
        env.step(np.zeros(30, np.int32))
    return env


def test_values_are_the_hidden_state():
    env = played(extras=("scans", "truth"))
    s, truth = env.state, env.buffers.observation[:, -TRUTH_VALUES:]
    for i, name in enumerate(("user", "flagged", "privileged", "malware", "addresses", "hostnames", "scanned")):
        assert np.array_equal(truth[:, NUM_HOSTS * i :][:, :NUM_HOSTS], host_bits(getattr(s, name))), name
    plan = truth[:, int(TRUTH_BITS[:3].sum()) :]
    assert np.array_equal(plan[:, :MIXED].argmax(1), s.red)
    assert np.array_equal(plan[:, MIXED + 3 :][:, :15].argmax(1), s.line_state)
    assert s.privileged.any()
    assert len(set(s.red.tolist())) == MIXED


def test_critic_values_follow_what_the_policy_sees():
    plain, critic = played(extras=("scans",)), played(extras=("scans",), critic="true-state")
    assert critic.critic_values == TRUTH_VALUES
    assert plain.critic_values == 0
    assert np.array_equal(critic.buffers.observation[:, :-TRUTH_VALUES], plain.buffers.observation)
    assert critic.buffers.observation[:, -TRUTH_VALUES:].any()


def test_a_policy_cannot_see_what_is_for_the_critic():
    with pytest.raises(ConfigError, match="the policy would see it too"):
        Cage2(2, extras=("truth",), critic="true-state")
    with pytest.raises(ConfigError, match="observation, true-state"):
        Cage2(2, critic="state")
