"""Acting through buffers of each group: the same samples and weights as without them."""

import numpy as np
import pytest
import torch

from cavalcade.policy.heads import Head
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.staged import Pending, Slot, StagedEngine
from tests.ppo.engines.recurrent.toy import CPU, Cue, config, engine


class InTorch(Head):
    """A categorical head that is always sampled in torch, as on a GPU."""

    def __init__(self, head):
        super().__init__(head.sizes, head.parts)
        self._head = head

    def sample(self, logits, mask, uniform):
        return self._head.sample(logits, mask, uniform)

    def greedy(self, logits, mask):
        return self._head.greedy(logits, mask)

    def evaluate(self, logits, mask, action):
        return self._head.evaluate(logits, mask, action)

    def probabilities(self, logits, mask):
        return self._head.probabilities(logits, mask)


class Eager(Cue):
    """Says that results have arrived as long as any group was sent actions."""

    holds = 0

    def ready(self):
        self.holds += len(self._sent) > 0
        return len(self._sent) > 0


def trained(kind, groups, core, **options):
    settings = config(core=core)
    env = Eager(settings.ppo.num_envs, spread=3, groups=groups)
    env.reset()
    one = engine(env, settings, kind, **options)
    one.head = InTorch(one.head)
    for _ in range(3):
        one.collect()
        metrics = one.update(0.0)
    return one, metrics


def assert_same(one, other):
    for part in zip(one.tensors(), other.tensors(), strict=True):
        assert part[0].keys() == part[1].keys()
        for name, tensor in part[0].items():
            assert torch.equal(tensor.cpu(), part[1][name].cpu()), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("core", ["none", "lstm"])
def test_graphs_change_nothing_on_a_gpu(core):
    device = torch.device("cuda")
    plain, _ = trained(RecurrentEngine, 2, core, device=device)
    for graphs in (False, True):
        staged, _ = trained(StagedEngine, 2, core, device=device, graphs=graphs)
        assert_same(plain, staged)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("core", ["none", "lstm", "gru"])
def test_results_equal_those_of_the_plain_engine_to_the_bit(groups, core):
    (plain, wanted), (staged, found) = (trained(kind, groups, core) for kind in (RecurrentEngine, StagedEngine))
    assert_same(plain, staged)
    assert {name: x.tolist() for name, x in wanted.items()} == {name: x.tolist() for name, x in found.items()}
    assert staged.env.holds if groups > 1 else not staged.env.holds


def test_actions_are_not_read_before_they_have_arrived():
    class Event:
        waited = False

        def synchronize(self):
            self.waited = True
            actions.copy_(torch.tensor([3, 1]))

    actions, arrived = torch.zeros(2, dtype=torch.int64), Event()
    pending = Pending(actions, arrived)
    assert not arrived.waited
    assert np.asarray(pending).tolist() == [3, 1]
    assert arrived.waited


def test_a_slot_keeps_its_buffers_from_step_to_step():
    inputs = (torch.arange(4.0), torch.ones(4, dtype=torch.bool))
    slot = Slot(inputs, CPU, graphs=True)
    before = [x.data_ptr() for x in slot.device]
    for i in range(4):
        slot.upload((inputs[0] + i, inputs[1]))
        (total,) = slot.run(lambda x, mask: ((x * mask).sum(),))
        assert float(total) == 6 + 4 * i
    assert [x.data_ptr() for x in slot.device] == before
