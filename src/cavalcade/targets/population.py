"""Training of feed-forward policies, shared by cage2, cyborg, gym: and env:."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cavalcade.config.io import from_dict
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.core.images import ImageLayout
from cavalcade.core.jit import all_threads
from cavalcade.core.threads import cores, use_threads
from cavalcade.policy.cnn import CnnSpec
from cavalcade.policy.heads import Choice, Head, head_from
from cavalcade.policy.mlp import ACTS_ONLY, MlpSpec
from cavalcade.policy.module import ModuleSpec
from cavalcade.policy.weights import weights_from
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.engine import Convolutional
from cavalcade.ppo.engines.cpu.engine import CpuEngine, why_not
from cavalcade.ppo.engines.image import ImageEngine
from cavalcade.ppo.factory import make_engine
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.ppo.precompile import StandIn, compiled_engine
from cavalcade.ppo.returns import reward_scale
from cavalcade.ppo.state import scaling_from
from cavalcade.ppo.threads import choose_threads, choose_torch_threads
from cavalcade.targets.base import Prepared, Saved, Setup

_CPU = torch.device("cpu")
MakeEnv = Callable[[Any, int, int], Environment]  # called with configuration, threads and first index


def prepare_population(
    make_env: MakeEnv,
    config: Any,
    setup: Setup,
    network: Convolutional | None = None,
    *,
    device: torch.device = _CPU,
) -> Prepared:
    """Makes and compiles environments and engine; one rank per machine compiles for the others."""
    ranks, alone = setup.ranks, setup.ranks.size == 1
    threads = setup.threads or (0 if alone else max(1, cores() // ranks.local_size))
    if threads:
        use_threads(threads)
    with _first_compiles(ranks):
        env = make_env(config, threads or all_threads(), setup.first_index)
        if network is None and device.type == "cpu":
            compile_for(env, config)
    measured = threads or choose_threads()
    use_threads(measured)
    if env.resumable:  # compilation has stepped it; hosted environments are left alone
        env = make_env(config, measured, setup.first_index)
    ppo = replace(config.ppo, normalise_observations=False) if network else config.ppo
    given: dict[str, Any] = {"ranks": ranks, "network": network or setup.network, "device": device}
    engine, notes = make_engine(env, ppo, config.seeds, **given)
    if isinstance(engine, ImageEngine) and device.type == "cpu":
        measured = threads or engine.choose_threads()
        engine.set_threads(measured)
    elif not isinstance(engine, CpuEngine):
        torch.set_num_threads(threads or choose_torch_threads())
    return Prepared(engine, measured, notes)


@contextmanager
def _first_compiles(ranks: Ranks) -> Iterator[None]:
    if ranks.local_rank:
        ranks.barrier()
    yield
    if not ranks.local_rank:
        ranks.barrier()


def compile_for(env: Environment, config: Any) -> None:
    """Compiles the kernels that the engine needs by running them once."""
    if env.resumable:
        compiled_engine(env, config.ppo, config.seeds)
    elif not why_not(env, config.ppo, config.ppo.dedup == "on"):  # hosted environments are not stepped before training
        compiled_engine(StandIn(**StandIn.looks_of(env)), config.ppo, config.seeds[:1])


def load_population(kind: Any, saved: Saved, **options: Any) -> MlpPolicy:
    """Loads the policies of a checkpoint; options: see `MlpPolicy`."""
    config, network, learner = from_dict(kind, saved.config), saved.network, saved.snapshot.learner
    head = head_from(network.get("head", Choice.kind), network.get("sizes", [network["actions"]]))
    spec = _spec(saved, head)
    named = dict(saved.snapshot.policy)
    first = next(iter(named.values()))
    if isinstance(spec, MlpSpec) and network.get(ACTS_ONLY):
        named |= spec.silent_critic(len(first), first.dtype)
    weights = weights_from(spec, named, len(first), first.dtype).numpy()
    moments = [learner[f"observation_{name}"].numpy() for name in ("count", "mean", "square")]
    shift, scale = scaling_from(*moments, normalise=config.ppo.normalise_observations)
    if isinstance(spec, MlpSpec) and (critic := spec.critic_values):
        spec, weights = spec.without_critic_values(weights)
        shift, scale = shift[:, :-critic], scale[:, :-critic]
    rewards = reward_scale(learner, normalise=config.ppo.normalise_returns)
    context = np.array(network["contexts"], np.float64).reshape(len(first), network["context"])
    updates = saved.snapshot.counters.updates
    return MlpPolicy(saved.path, config, updates, head, spec, weights, context, shift, scale, rewards, **options)


def _spec(saved: Saved, head: Head) -> MlpSpec | ModuleSpec | CnnSpec:
    """Networks of a checkpoint. A user-defined network is never imported by its name; the caller has to pass it."""
    n = saved.network
    if "image" in n:
        image = ImageLayout(**n["image"] | {"shape": tuple(n["image"]["shape"])})
        return CnnSpec(image, n["actions"], head.deviations, n["features"])
    if "module" not in n:
        sizes = (n["inputs"], n["actions"], tuple(n["hidden"]), n["context"], head.deviations)
        return MlpSpec(*sizes, critic_values=n.get("critic_values", 0))
    if saved.module is None:
        raise ConfigError(f"{saved.path} has a custom network, {n['module']}; give it: network={n['module']}")
    return ModuleSpec(saved.module, n["inputs"], n["actions"], head.deviations)


def check_ranks(config: Any) -> None:
    """Raises `ConfigError` for settings that data-parallel ranks of feed-forward policies do not support."""
    if config.ppo.replay:
        raise ConfigError(f"replay is {config.ppo.replay} on several ranks; each rank would have its own, use 0")
    if getattr(config, "policies", 1) > 1:
        raise ConfigError(f"policies is {config.policies} on several ranks; ranks share one policy's environments")
