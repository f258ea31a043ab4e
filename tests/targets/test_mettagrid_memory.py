"""What a training needs is computed from its settings, and checked before it starts."""

import pytest
import torch

from cavalcade.config.recurrent import RecurrentPPOConfig, TokenPolicyConfig
from cavalcade.core.errors import ConfigError
from cavalcade.policy.heads import Choice
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.ppo.engines.recurrent.experience import Experience
from cavalcade.targets.mettagrid.memory import Needs, Sizes, check_memory, needs
from tests.ppo.engines.recurrent.toy import CPU, LAYOUT


@pytest.mark.parametrize("core", ["none", "gru", "lstm"])
def test_experience_is_counted_to_the_byte(core):
    ppo = RecurrentPPOConfig(num_envs=4, batch_size=512, minibatch_size=256, bptt_horizon=16)
    network = TokenPolicyConfig(core=core, width=16)
    state = TokenPolicy(LAYOUT, 5, core=core, width=16).initial_state(1)
    e = Experience(8, 64, 16, LAYOUT, Choice(5), state, CPU, masks=5)
    held = [e.observation, e.mask, e.action, e.log_prob, e.value, e.advantage, e.returns, *e.state]
    held += [e.results.reward, e.results.ended, e.results.bootstrap]
    size = sum(x.nbytes for x in held) + e.begins.nbytes
    found = needs(ppo, network, Sizes(2, 5, 200, LAYOUT.tokens), hosted=False)
    assert found.experience == size


def test_pieces_of_a_minibatch_need_less():
    ppo = {"num_envs": 4, "batch_size": 512, "minibatch_size": 256, "bptt_horizon": 16}
    network, sizes = TokenPolicyConfig(), Sizes(2, 5, 200, 128)
    one, four = (needs(RecurrentPPOConfig(**ppo, grad_accum=n), network, sizes, hosted=True) for n in (1, 4))
    assert one.activations == 4 * four.activations
    assert one[::2] == four[::2]


def test_fragments_of_workers_are_counted():
    ppo = RecurrentPPOConfig(num_envs=4, batch_size=512, minibatch_size=256, bptt_horizon=16)
    found = [needs(ppo, TokenPolicyConfig(), Sizes(2, 5, 200, 128), hosted=True, fragments=n).arenas for n in (0, 1, 3)]
    assert found[1] - found[0] > 512 * 2 * 600  # observations and final ones
    assert found[2] - found[0] == 3 * (found[1] - found[0])


def test_what_does_not_fit_on_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**34))
    large = Needs(experience=2**30, activations=2**20, arenas=2**20)
    with pytest.raises(ConfigError, match=r"experience of 1\.0 GiB.*1\.0 GiB of the GPU; use --offload"):
        check_memory(large, on_gpu=True, offload=False)
    check_memory(large, on_gpu=True, offload=True)
    check_memory(Needs(2**20, 2**20, 2**20), on_gpu=True, offload=False)
