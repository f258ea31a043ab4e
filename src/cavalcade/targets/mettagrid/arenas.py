"""Arenas of a training, and a check that they fit this machine."""

from functools import cache
from typing import Any

import psutil
import torch

from cavalcade.core.device import device_named
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import cores
from cavalcade.envs.mettagrid.source import mettagrid_source
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.envs.mettagrid.tasks import load_task
from cavalcade.policy.tokens import TokenLayout
from cavalcade.targets.mettagrid.config import MettagridConfig
from cavalcade.targets.mettagrid.layout import token_layout
from cavalcade.vector.hosted import Hosted

_ROOM = 0.8  # share of free memory that buffers may use


@cache
def game_of(task: MettagridTask) -> Any:
    """MettaGridConfig of a task."""
    return load_task(task.task, task.options)


def layout_of(task: MettagridTask) -> TokenLayout:
    """Token layout of a task."""
    return token_layout(game_of(task), task.max_tokens)


def arenas(config: MettagridConfig, first_index: int = 0) -> Hosted:
    """Hosts the arenas of a training; first_index: index of this rank's first arena."""
    source = mettagrid_source(config.arena.task, config.arena.options, stats=config.arena.stats)
    agents = config.ppo.num_envs * source.agents
    config.ppo.steps(agents)
    check_fits(config, source.agents)
    return Hosted(source, agents, config.host, seed=config.seed, first_index=first_index * source.agents)


def check_fits(config: MettagridConfig, agents: int) -> None:
    """Raises `ConfigError` if this machine has too few cores or too little memory, and suggests settings."""
    c, here = config.ppo, cores()
    if config.host.workers > here and config.host.backend != "serial":
        fewer = max(1, here)
        size = f"--workers {fewer} --num-envs {max(1, c.num_envs * fewer // config.host.workers)}"
        raise ConfigError(
            f"{config.host.workers} workers on {here} cores: each step would wait for the slowest; use {size} with a "
            "--batch-size and --minibatch-size to match, or --hardware laptop"
        )
    on_gpu = device_named(config.machine.device).type == "cuda" and not config.machine.offload
    state = 8 * config.policy.width / c.bptt_horizon
    experience = int(c.batch_size * (3 * config.arena.max_tokens + 32 + state))
    needed = 0 if on_gpu else experience
    needed += c.num_envs * agents * 2 * 3 * game_of(config.arena).game.obs.num_tokens + c.num_envs * 500_000
    if on_gpu:
        there = torch.cuda.mem_get_info()[0]
        if experience > _ROOM * there:
            raise ConfigError(
                f"experience of {experience / 2**30:.1f} GiB does not fit into {there / 2**30:.1f} GiB of the GPU; "
                "use --offload, or a smaller --batch-size"
            )
    free = psutil.virtual_memory().available
    if needed > _ROOM * free:
        share = _ROOM * free / needed
        raise ConfigError(
            f"buffers of {needed / 2**30:.1f} GiB do not fit into {free / 2**30:.1f} GiB of free memory; lower "
            f"--batch-size and --num-envs to about {share:.0%}, or --max-tokens"
        )
