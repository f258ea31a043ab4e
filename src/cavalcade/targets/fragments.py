"""Training on fragments that workers or Ray actors play by themselves, shared by targets with hosted environments."""

from typing import Any

import torch

from cavalcade.config.hosting import CollectorConfig
from cavalcade.core.device import learner_device
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import use_threads
from cavalcade.ppo.collectors.fragments import fragment_engine
from cavalcade.ppo.engines.cpu.engine import CpuEngine
from cavalcade.ppo.threads import choose_threads, choose_torch_threads
from cavalcade.targets.base import Prepared, Setup
from cavalcade.targets.population import compile_for
from cavalcade.vector.hosted import Hosted


def prepare_fragments(env: Hosted, config: Any, setup: Setup) -> Prepared:
    """The engine of a batch whose workers act by themselves."""
    lag, ppo = config.host.lag, config.ppo
    if setup.network is not None:
        raise ConfigError(f"staleness is {lag} with a custom network; workers act with perceptrons, use --staleness 0")
    device = learner_device(config.device)
    if ppo.engine != "torch" and device.type == "cpu":
        compile_for(env, config)
    threads = setup.threads or choose_threads()
    use_threads(threads)
    engine = fragment_engine(env, ppo, config.seeds, config.host, device)
    if not isinstance(engine, CpuEngine):
        torch.set_num_threads(setup.threads or choose_torch_threads())
    return Prepared(engine, threads, [playing(env, config)])


def playing(env: Any, config: Any) -> str:
    """Says who plays, and how old experience may be; env: hosted environments."""
    workers, host = len(env.groups), config.host
    who = "actors on Ray" if host.backend == "ray" else "workers"
    each = config.ppo.num_envs // workers
    return f"{workers} {who} play {each} environments each; experience is at most {host.lag} updates old"


def check_in_step(host: CollectorConfig) -> None:
    """Raises `ConfigError` for experience of different ages on several ranks."""
    if host.lag:
        raise ConfigError(f"staleness is {host.lag} on several ranks; ranks learn in step, use --staleness 0")
