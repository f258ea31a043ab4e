"""Picks the fastest compatible engine; notes explain fallbacks."""

from collections.abc import Sequence
from typing import Any

import torch

from cavalcade.config.ppo import PPOConfig
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.policy.module import MakeModule
from cavalcade.ppo.engine import Convolutional
from cavalcade.ppo.engines.cpu.engine import CpuEngine, why_not
from cavalcade.ppo.engines.host import HostEngine
from cavalcade.ppo.engines.image import ImageEngine
from cavalcade.ppo.engines.torch import TorchEngine
from cavalcade.ppo.engines.torch_device import ImageDeviceEngine, TorchDeviceEngine

_CPU = torch.device("cpu")


def make_engine(
    env: Environment,
    config: PPOConfig,
    seeds: Sequence[int],
    *,
    parts: int = 0,
    network: MakeModule | Convolutional | None = None,
    device: torch.device = _CPU,
    **options: Any,
) -> tuple[HostEngine, list[str]]:
    """An engine, and notes on the choice; parts: see `CpuEngine`, options: see `PopulationEngine`.

    device: of the updates; environments step on the CPU.
    """
    if device.type != "cpu":
        if config.engine == "cpu":
            raise ConfigError(f"engine is cpu with device {device.type}; leave one of them out")
        kind = ImageDeviceEngine if isinstance(network, Convolutional) else TorchDeviceEngine
        notes = [f"updates on {torch.cuda.get_device_name(device)}"]
        return kind(env, config, seeds, device=device, network=network, **options), notes
    if network is not None:
        if config.engine == "cpu":
            kind = "a convolutional encoder" if isinstance(network, Convolutional) else "a custom network"
            raise ConfigError(f"engine is cpu with {kind}; it needs the torch engine, leave out --engine")
        if isinstance(network, Convolutional):
            return ImageEngine(env, config, seeds, network=network, **options), []
        return TorchEngine(env, config, seeds, network=network, **options), []
    notes = []
    if config.engine == "torch" or (config.engine == "auto" and why_not(env, config, distinct=False)):
        if config.engine == "auto":
            notes.append(f"torch engine: {why_not(env, config, distinct=False)}")
        if config.dedup == "on":
            notes.append("no deduplication: the torch engine computes every sample")
        return TorchEngine(env, config, seeds, **options), notes
    distinct = config.dedup != "off"
    if config.dedup == "auto" and (why := why_not(env, config, distinct=True)):
        distinct = False
        if env.packed is not None:
            notes.append(f"no deduplication: {why}")
    return CpuEngine(env, config, seeds, distinct=distinct, parts=parts, **options), notes
