import numpy as np
import pytest
import torch

from cavalcade.policy.recurrent import Output, TokenPolicy
from cavalcade.ppo.auxiliary.contrastive import Contrastive
from cavalcade.ppo.auxiliary.kickstart import Kickstart
from cavalcade.ppo.auxiliary.priority import Prioritised
from cavalcade.ppo.auxiliary.statistics import Statistics
from cavalcade.ppo.engines.recurrent.experience import Segments
from tests.ppo.engines.recurrent.test_engine import advance, learner
from tests.ppo.engines.recurrent.toy import LAYOUT, Cue


def test_segments_are_drawn_by_the_power_of_their_advantages():
    sampler = Prioritised(0, 4, alpha=2.0, beta=1.0)
    sampler.begin(torch.tensor([[1.0, -1.0], [2.0, 2.0], [-3.0, 3.0], [0.0, 0.0]]), 0.0)
    drawn = torch.cat([part for update in range(4000) for part, _ in sampler.minibatches(update, 0, 2)])
    share = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(share, torch.tensor([1, 4, 9, 0]) / 14, atol=0.02, rtol=0)


@pytest.mark.parametrize(("progress", "unbiased"), [(0.0, False), (1.0, True)])
def test_importance_corrects_the_preference_in_full_at_the_end(progress, unbiased):
    sampler = Prioritised(0, 3, alpha=1.0, beta=0.0)
    sampler.begin(torch.tensor([[1.0], [2.0], [6.0]]), progress)
    total, count = torch.zeros(3), 0
    for update in range(6000):
        for part, weight in sampler.minibatches(update, 0, 3):
            total.index_add_(0, part, weight)
            count += len(part)
    share = total / total.sum()
    assert torch.allclose(share, torch.full((3,), 1 / 3), atol=0.02) == unbiased


def test_no_priority_draws_each_segment_once():
    one = learner()
    parts = one.sampler.minibatches(0, 0, 8)
    assert sorted(torch.cat([part for part, _ in parts]).tolist()) == list(range(one.experience.segments))
    assert all(weight is None for _, weight in parts)


def test_prioritised_training_learns():
    """To name a cue in sight: chance is one half."""
    one = learner(
        Cue(64, length=1), agents=64, rounds=1, core="none", epochs=2, learning_rate=5e-3, schedule="constant"
    )
    one.sampler = Prioritised(0, one.experience.segments, 0.8, 0.2)
    assert one.collect().total.mean() < 0.6
    one.update(0.0)
    advance(one, 40)
    assert one.collect().total.mean() > 0.95


@pytest.mark.parametrize("pieces", [1, 2])
def test_importance_weighs_segments_in_the_policy_loss_alone(pieces):
    one = learner(value_coef=0.0, entropy_coef=0.0)
    one.collect()
    one._advantages()
    index, importance = torch.arange(8), torch.linspace(0.1, 1.0, 8)

    def gradient(index, importance):
        one.policy.zero_grad()
        one._gradient(index, importance)
        return torch.cat([p.grad.flatten() for p in one.policy.parameters()])

    each = torch.stack([gradient(index[i : i + 1], None) for i in range(8)])
    one._pieces = pieces
    torch.testing.assert_close(gradient(index, importance), importance @ each / 8, atol=1e-6, rtol=1e-4)
    one._coefficients = one._coefficients._replace(value=torch.ones(1))
    one.experience.advantage.zero_()
    plain = gradient(index, None)
    assert float(plain.norm()) > 0
    torch.testing.assert_close(gradient(index, importance), plain)


def test_a_teacher_is_imitated_until_its_time_is_over():
    torch.manual_seed(7)
    teacher = TokenPolicy(LAYOUT, 2, core="gru", width=8)
    teacher.actor.weight.data *= 100
    teacher.actor.bias.data = torch.tensor([1.5, -1.5])
    teacher.critic.bias.data = torch.tensor([2.0])
    batch = 16 * 4 * 2
    one = learner(learning_rate=1e-2, entropy_coef=0.0, value_coef=0.0, schedule="constant", epochs=2)
    kickstart = Kickstart(teacher, 1.0, action=5.0, value=1.0, steps=100 * batch, batch=batch)
    one.auxiliary.append(kickstart)
    first = advance(one)
    for _ in range(30):
        last = advance(one)
    assert last["kickstart_action"][0] < 0.75 * first["kickstart_action"][0]
    assert last["kickstart_value"][0] < 0.5 * first["kickstart_value"][0]
    assert kickstart.weight == 1.0
    kickstart.begin(one.experience, 100 - 13, 0.0)
    assert kickstart.weight == pytest.approx(0.2)
    kickstart.begin(one.experience, 100, 0.0)
    one.collect()
    assert kickstart.weight == 0.0
    assert float(kickstart.loss(one.experience.take(torch.arange(4)), None_output())[0]) == 0.0


def None_output():  # noqa: N802
    return Output(torch.zeros(4, 4, 2), torch.zeros(4, 4), torch.zeros(4, 4, 16))


def test_a_teacher_remembers_over_segments_and_forgets_at_beginnings():
    """What it says to stored experience is what it would say playing along."""
    torch.manual_seed(3)
    teacher = TokenPolicy(LAYOUT, 2, core="lstm", width=8)
    one = learner(rounds=3)
    kickstart = Kickstart(teacher, 1.0, 1.0, 1.0, 10**9, 1)
    state, over = teacher.initial_state(16), np.zeros(16, np.bool_)
    for update in range(2):
        one.collect()
        e = one.experience
        kickstart.begin(e, update, 0.0)
        ended = e.results.ended[0].numpy()
        tokens = e.observation.view(-1, 16, 4, 4, 3).transpose(1, 2).reshape(12, 16, 4, 3)
        said = []
        with torch.no_grad():
            for t in range(12):
                out, state = teacher(tokens[t : t + 1], state, over[None])
                said.append(out.values[0])
                over = ended[t]
        torch.testing.assert_close(e.by_time(kickstart._values)[0], torch.stack(said), atol=1e-5, rtol=1e-4)


def contrast(features, begins=None):
    h, b, _ = features.shape
    begins = np.zeros((h, b), np.bool_) if begins is None else begins
    empty = torch.zeros(h, b)
    batch = Segments(empty, empty, empty, empty, empty, empty, empty, (), begins, torch.arange(b))
    extra = Contrastive(1.0, 0.1, 0.0, 0)
    return extra.loss(batch, Output(empty, empty, features))


def test_a_future_that_can_be_told_costs_less_than_one_that_cannot():
    torch.manual_seed(0)
    own = torch.randn(1, 32, 16).expand(8, -1, -1)
    told, said = contrast(own + 0.01 * torch.randn(8, 32, 16))
    untold, unsaid = contrast(torch.randn(8, 32, 16))
    assert float(told) < 0.1 < float(untold)
    assert float(said["contrastive_right"]) == 1.0
    assert float(unsaid["contrastive_right"]) < 0.4


def test_futures_of_other_episodes_do_not_count():
    begins = np.ones((8, 32), np.bool_)
    loss, said = contrast(torch.randn(8, 32, 16), begins)
    assert float(loss) == 0.0
    assert not said


def test_the_contrastive_loss_shapes_what_is_remembered():
    one = learner(agents=64, learning_rate=3e-3, schedule="constant", horizon=8, value_coef=0.0, rounds=1, parts=1)
    one.auxiliary.append(Contrastive(1.0, 0.1, 0.0, 0))
    first = np.mean([advance(one)["contrastive_loss"][0] for _ in range(5)])
    advance(one, 100)
    last = np.mean([advance(one)["contrastive_loss"][0] for _ in range(5)])
    assert last < first - 0.1  # agents that saw the same cannot be told apart: it never gets near 0


def test_statistics_are_those_of_weights_and_gradients_and_come_when_due():
    one = learner(parts=1)
    one.auxiliary.append(Statistics(2))
    due, not_due = advance(one), advance(one)
    norm = one.policy.actor.weight.detach().norm()
    third = advance(one)
    assert due["weight_norm/actor.weight"][0] > 0
    assert due["gradient_norm/actor.weight"][0] > 0
    assert due["gradient_spread/actor.weight"][0] == 0  # one minibatch
    assert 0 <= due["gradient_zero/encoder.bag.table"][0] < 1
    assert not [name for name in not_due if "/" in name]
    assert third["weight_norm/actor.weight"][0] != float(norm)
