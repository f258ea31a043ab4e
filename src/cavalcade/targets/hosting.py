"""Helpers for targets with hosted environments."""

from dataclasses import replace
from typing import TypeVar

from cavalcade.config.hosting import WorkerConfig
from cavalcade.core.threads import cores
from cavalcade.ppo.distributed import Ranks

H = TypeVar("H", bound=WorkerConfig)


def host_share(host: H, environments: int, ranks: Ranks) -> H:
    """Host settings of one rank: its environments on its share of the cores."""
    if host.backend == "serial" or host.workers:
        return host
    factor = host.async_factor if host.backend == "async" else 1
    return replace(host, workers=max(1, min(cores() // ranks.local_size, environments // factor)))
