"""Scores of a search: the same games alone, in a batch, and played where a GPU would."""

import numpy as np
import pytest

from cavalcade.config import PPOConfig
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.ppo.engine import network_for
from cavalcade.search.config import SearchConfig
from cavalcade.search.domains import make_environment
from cavalcade.search.members import CONFIRM, ORDER, PLAIN, SEARCHING, Member
from cavalcade.search.scoring import CpuScorer, GpuScorer, Policies

CONFIG = SearchConfig(ppo=PPOConfig(num_envs=4, hidden=(16,)), score_episodes=20)
MEMBERS = [
    Member(0, SEARCHING, ORDER, 3, 0, 1),
    Member(1, CONFIRM, ORDER, 77, 1, 1),
    Member(2, SEARCHING, ORDER, 118, 2, 1),
    Member(3, CONFIRM, PLAIN, 3, 3, 1),
]


@pytest.fixture(scope="module")
def policies():
    _, spec = network_for(make_environment(CONFIG, 1), CONFIG.ppo)
    scaling = np.zeros((4, spec.inputs))
    return Policies(spec, 30 * spec.initial_weights([0, 1, 2, 3]), scaling, scaling + 1)


def test_a_score_does_not_depend_on_what_is_scored_beside_it(policies):
    scorer = CpuScorer(CONFIG, CAGE2.orders(), 1)
    together = scorer.score(policies, MEMBERS)
    for i, member in enumerate(MEMBERS):
        one = Policies(policies.spec, policies.weights[i : i + 1], policies.shift[i : i + 1], policies.scale[i : i + 1])
        (alone,) = scorer.score(one, [member])
        assert alone.mean == together[i].mean
        assert alone.error == together[i].error
        np.testing.assert_equal(alone.means, together[i].means)
    assert len({score.mean for score in together}) == 4


def test_the_scorer_of_a_gpu_plays_the_same_games(policies):
    """On the CPU here: the same code as on a GPU."""
    ours = CpuScorer(CONFIG, CAGE2.orders(), 1).score(policies, MEMBERS)
    theirs = GpuScorer(CONFIG, CAGE2.orders()).score(policies, MEMBERS)
    for a, b in zip(ours, theirs, strict=True):
        assert b.mean == pytest.approx(a.mean, abs=1e-9)
        np.testing.assert_allclose(list(a.means.values()), list(b.means.values()), atol=1e-9)
    assert max(score.means["binding"] for score in ours) > 1
