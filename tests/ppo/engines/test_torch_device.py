"""Updates on a device: on the CPU the same as the torch engine to the bit; a GPU that is not there is refused."""

from dataclasses import replace

import pytest
import torch

from cavalcade.config import HostConfig, PPOConfig
from cavalcade.core.device import learner_device
from cavalcade.core.errors import ConfigError
from cavalcade.ppo.collectors.fragments import FragmentDeviceEngine, FragmentTorchEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.engines.torch_device import TorchDeviceEngine
from cavalcade.vector.hosted import Hosted
from tests.vector.test_hosted import game

PPO = PPOConfig(num_envs=4, rollout_steps=8, minibatches=2, hidden=(8,), normalise_observations=True, target_kl=0.05)
CPU = torch.device("cpu")


def made(kind, config=PPO, host=None, **options):
    env = Hosted(game("Counting"), config.num_envs, host or HostConfig(backend="serial"))
    engine = kind(env, config, [1], **options)
    env.reset()
    return engine


@pytest.mark.parametrize("acts_there", [False, True])
def test_updates_are_those_of_the_torch_engine(acts_there):
    here, there = made(TorchEngine), made(TorchDeviceEngine, device=CPU)
    there.acts_there = acts_there
    for update in range(4):
        if update == 2:
            saved = here.snapshot(), there.snapshot()
            here, there = made(TorchEngine), made(TorchDeviceEngine, device=CPU)
            here.restore(saved[0])
            there.restore(saved[1])
        for engine in (here, there):
            engine.collect()
        a, b = here.update(update / 4), there.update(update / 4)
        assert all((a[name] == b[name]).all() for name in a)
        for name, tensor in here.state.tensors().items():
            torch.testing.assert_close(getattr(there.state, name), tensor, rtol=0, atol=0)


def test_fragments_too():
    host = HostConfig(staleness=1, workers=2, worker_timeout=600)
    given = {"host": host, "staleness": 1, "vtrace": True}
    engines = [made(FragmentTorchEngine, **given), made(FragmentDeviceEngine, device=CPU, **given)]
    for update in range(3):
        for engine in engines:
            engine.collect()
            engine.update(update / 3)
    torch.testing.assert_close(engines[0].state.weights, engines[1].state.weights, rtol=0, atol=0)
    for engine in engines:
        engine.env.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="device is cuda, but torch sees no GPU here"):
        learner_device("cuda")
    assert learner_device("auto") == CPU


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_learns_what_the_cpu_does():
    config = replace(PPO, target_kl=0.0)
    here, there = made(TorchEngine, config), made(TorchDeviceEngine, config, device=torch.device("cuda"))
    for engine in (here, there):
        engine.collect()
        engine.update(0.0)
    torch.testing.assert_close(here.state.weights, there.state.weights, rtol=1e-3, atol=1e-4)
