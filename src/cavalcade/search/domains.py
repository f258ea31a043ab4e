"""Domains of a search: how to make their environments, what their orders are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cavalcade.config import SearchConfig
from cavalcade.envs.cage2.cyborg_workflow import WorkflowCyborg
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.envs.checkpoints import CHECKPOINTS, Checkpoints
from cavalcade.errors import ConfigError, one_of
from cavalcade.workflow.orders import Order, Subtasks
from cavalcade.workflow.tracking import WorkflowEnvironment

TARGETS = ("cage2", "checkpoints", "cyborg")


def subtasks_of(config: SearchConfig) -> Subtasks:
    """The subtasks of a search's domain."""
    return (CAGE2, CHECKPOINTS, CAGE2)[one_of("target", config.target, TARGETS)]


def given_orders(config: SearchConfig) -> list[Order]:
    """The orders named in the configuration, checked."""
    subtasks = subtasks_of(config)
    found = [subtasks.parse(text) for text in config.orders]
    if len(set(found)) < len(found):
        raise ConfigError("orders has one of them twice; name each once, and --rounds for more trainings of each")
    return found


def make_environment(
    config: SearchConfig, num_envs: int, *, stream: str = "train", seed: int | Sequence[int] = 0, threads: int = 0
) -> WorkflowEnvironment:
    """A batch of a search's domain."""
    workflow, task = config.workflow, config.task
    options: dict[str, Any] = workflow.counting | {
        "gamma": config.ppo.gamma, "stream": stream, "seed": seed, "horizon": task.horizon,
        "horizon_ends": config.ppo.horizon_ends,
    }  # fmt: skip
    if config.target == "checkpoints":
        return Checkpoints(num_envs, **options)
    options["open_until"] = workflow.open_until
    if config.target == "cyborg":
        return WorkflowCyborg(
            Path(config.cyborg),
            num_envs,
            Path(config.cyborg_python) if config.cyborg_python else None,
            config.host,
            red=task.red,
            true_state_every=config.host.true_state_every or 1,
            **task.shown,
            **options,
        )
    return WorkflowCage2(num_envs, red=task.red, threads=threads, **task.shown, **options)
