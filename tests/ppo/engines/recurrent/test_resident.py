"""Games on the engine's own device: the same experience and the same weights as with games in the batch."""

import numpy as np
import pytest
import torch

from cavalcade.config.recurrent import MachineConfig, RecurrentPPOConfig
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.device import DeviceArenas
from cavalcade.envs.mettagrid.games import forage
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.policy.recurrent import TokenPolicy, seeded
from cavalcade.ppo.auxiliary.statistics import Statistics
from cavalcade.ppo.engines.recurrent.engine import RecurrentEngine
from cavalcade.ppo.engines.recurrent.resident import ResidentEngine
from cavalcade.targets.mettagrid.arenas import layout_of

OPTIONS = ("agents=4", "size=11", "max_steps=12", "walls=2", "mines=6")
CPU = torch.device("cpu")


def engine(*, resident, core="lstm", stats=("ore.gained",), options=OPTIONS, **more):
    task = MettagridTask(env_options=options, max_tokens=32, stats=stats)
    env = Arenas(forage(**task.options), 16, seed=2, stats=stats)
    env.reset()
    config = RecurrentPPOConfig(num_envs=4, batch_size=256, minibatch_size=64, bptt_horizon=8, **more)
    policy = seeded(1, lambda: TokenPolicy(layout_of(task), 5, core=core, width=16))
    options = {"machine": MachineConfig(device="cpu"), "device": CPU, "seed": 3}
    if resident:
        return ResidentEngine(DeviceArenas(env, policy.layout.tokens, CPU), env, policy, config, **options)
    return RecurrentEngine(env, policy, config, **options)


@pytest.mark.parametrize(
    ("core", "more"),
    [("lstm", {}), ("none", {"normalise_returns": True}), ("gru", {"vtrace": True}), ("lstm", {"epochs": 2})],
)
def test_it_learns_what_the_plain_engine_learns(core, more):
    one, two = (engine(resident=resident, core=core, **more) for resident in (False, True))
    for update in range(4):
        a, b = one.collect(), two.collect()
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)
        for name in ("observation", "action", "mask", "log_prob", "value"):
            x, y = (getattr(e.experience, name) for e in (one, two))
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5, msg=name)
        np.testing.assert_array_equal(one.experience.begins, two.experience.begins)
        m, n = one.update(update / 4), two.update(update / 4)
        assert m["tokens_dropped"] == n["tokens_dropped"]
        np.testing.assert_allclose(m["reward"], n["reward"], rtol=1e-5)
        for (name, x), (_, y) in zip(one._parameters().items(), two._parameters().items(), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(("every", "wanted"), [(1, set()), (3, {1})])
def test_recorded_gradient_steps_are_the_plain_ones(every, wanted, monkeypatch):
    longer = (*OPTIONS, "max_steps=44")  # episodes begin in update 2
    one, two = (engine(resident=True, epochs=2, options=longer) for _ in range(2))
    two._graphs = two.optimizers.recordable = True  # the graph's work, run eagerly
    recorded = []
    work = two._gradient_step
    monkeypatch.setattr(two, "_gradient_step", lambda: recorded.append(two.state.updates) or work())
    for e in (one, two):
        e.auxiliary.append(Statistics(every))
    for update in range(4):
        found = []
        for e in (one, two):
            e.collect()
            found.append(e.update(update / 4))
        assert found[0].keys() == found[1].keys()
        for name, x in found[0].items():
            np.testing.assert_array_equal(x, found[1][name], err_msg=name)
        for x, y in zip(one._parameters().values(), two._parameters().values(), strict=True):
            assert torch.equal(x, y)
    assert {*recorded} == wanted  # not where statistics are due or an episode begins


def test_steps_that_cannot_be_recorded_are_plain(monkeypatch):
    longer = (*OPTIONS, "max_steps=44")
    one, two = (engine(resident=True, options=longer) for _ in range(2))
    two._graphs = two.optimizers.recordable = True

    def fail():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore")

    monkeypatch.setattr(two, "_gradient_step", fail)
    for e in (one, two):
        e.collect()
        e.update(0.5)
    assert two.notes == ["gradient steps are not recorded as CUDA graphs: CUDA out of memory. Tried to allocate 2 GiB"]
    for x, y in zip(one._parameters().values(), two._parameters().values(), strict=True):
        assert torch.equal(x, y)


def test_it_resumes_bit_for_bit():
    one, two = engine(resident=True), engine(resident=True)
    for _ in range(2):
        one.collect()
        one.update(0.1)
    saved = one.snapshot()
    two.restore(saved)
    for _ in range(2):
        for e in (one, two):
            e.collect()
            e.update(0.5)
    for x, y in zip(one._parameters().values(), two._parameters().values(), strict=True):
        assert torch.equal(x, y)
    for name, x in one.env.save_state().items():
        np.testing.assert_array_equal(x, two.env.save_state()[name], err_msg=name)


def test_both_engines_take_over_from_each_other():
    one, two = engine(resident=False), engine(resident=True)
    one.collect()
    one.update(0.1)
    two.restore(one.snapshot())
    a, b = one.collect(), two.collect()
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)
    torch.testing.assert_close(one.experience.value, two.experience.value, rtol=1e-4, atol=1e-5)
