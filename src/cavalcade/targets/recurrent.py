"""Training of recurrent policies on rows, shared by cage2 and gym:."""

from dataclasses import replace
from typing import Any

import torch

from cavalcade.config.io import from_dict
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import cores, use_torch_threads
from cavalcade.policy.heads import head_from
from cavalcade.policy.recurrent import seeded
from cavalcade.policy.rows import RowLayout, RowPolicy
from cavalcade.ppo.collectors.recurrent import RowFragmentEngine
from cavalcade.ppo.engine import Convolutional, head_of
from cavalcade.ppo.engines.recurrent.rows import RowEngine
from cavalcade.ppo.recurrent_policy import RowRecurrentPolicy
from cavalcade.ppo.returns import reward_scale
from cavalcade.ppo.state import load_into, scaling_from
from cavalcade.ppo.threads import choose_torch_threads
from cavalcade.targets.base import Prepared, Saved, Setup
from cavalcade.targets.fragments import playing
from cavalcade.vector.hosted import Hosted

_CPU = torch.device("cpu")


def has_memory(saved: Saved) -> bool:
    """Whether the policy of a checkpoint is recurrent."""
    return "core" in saved.network


def prepare_recurrent(
    env: Environment,
    config: Any,
    setup: Setup,
    network: Convolutional | None = None,
    *,
    device: torch.device = _CPU,
    precision: str = "fp32",
) -> Prepared:
    """Makes the recurrent engine of environments; its policy computes in torch, on the CPU or a GPU."""
    memory, ppo = config.recurrence, config.ppo
    if getattr(config, "policies", 1) > 1:
        raise ConfigError(f"policies is {config.policies} with memory {memory.memory}; train one policy per run")
    if setup.network is not None:
        raise ConfigError(f"memory is {memory.memory} with a custom network; leave one of them out")
    if setup.ranks.size > 1:
        raise ConfigError(f"memory is {memory.memory} on several ranks; only mettagrid trains recurrent policies there")
    recurrent, head = memory.ppo(ppo), head_of(env)
    shown = env.buffers.observation
    layout = RowLayout(shown.shape[1], torch.from_numpy(shown).dtype, network.image if network else None)
    given: dict[str, Any] = {"features": network.features, "half": network.half} if network else {"hidden": ppo.hidden}
    policy = seeded(
        config.seed,
        lambda: RowPolicy(layout, head.outputs, core=memory.memory, deviations=head.deviations, **given),
    )
    threads = setup.threads or min(choose_torch_threads(), cores())
    use_torch_threads(threads)
    options: Any = {"normalise": ppo.normalise_observations, "device": device, "precision": precision}
    options["seed"] = config.seed
    where = "" if device.type == "cpu" else f", on {torch.cuda.get_device_name(device)}"
    notes = [f"{memory.memory} of width {policy.width}{where}"]
    if isinstance(env, Hosted) and config.host.lag:
        recurrent = replace(recurrent, vtrace=config.host.vtrace)
        engine = RowFragmentEngine(env, policy, recurrent, staleness=config.host.lag, **options)
        notes.append(playing(env, config))
    else:
        engine = RowEngine(env, policy, recurrent, **options)
    return Prepared(engine, threads, notes)


def load_recurrent(kind: Any, saved: Saved, **options: Any) -> RowRecurrentPolicy:
    """Loads the recurrent policy of a checkpoint; options: see `RowRecurrentPolicy`."""
    config, learner = from_dict(kind, saved.config), saved.snapshot.learner
    ppo: PPOConfig = config.ppo
    head = head_from(saved.network["head"], saved.network["sizes"])
    policy = RowPolicy.from_description(saved.network, head.deviations)
    load_into({name: p.detach() for name, p in policy.named_parameters()}, saved.snapshot.policy)
    moments = [learner[f"observation_{name}"].numpy() for name in ("count", "mean", "square")]
    shift, scale = scaling_from(*moments, normalise=ppo.normalise_observations)
    policy.normalise(torch.from_numpy(shift[0]), torch.from_numpy(scale[0]))
    rewards, updates = reward_scale(learner, normalise=ppo.normalise_returns), saved.snapshot.counters.updates
    return RowRecurrentPolicy(saved.path, config, updates, head, policy.eval(), float(rewards[0]), **options)
