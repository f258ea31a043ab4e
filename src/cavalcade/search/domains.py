"""Domains of a search: their environments, orders and capabilities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.cyborg_workflow import WorkflowCyborg
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.record import check_revision
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.envs.gridworld import GRIDWORLD, Gridworld
from cavalcade.search.config import SearchConfig
from cavalcade.workflow.orders import Order, Subtasks
from cavalcade.workflow.tracking import WorkflowEnvironment


def _cage2(config: SearchConfig, num_envs: int, threads: int, options: dict[str, Any]) -> WorkflowEnvironment:
    task = config.task
    return WorkflowCage2(
        num_envs, red=task.red, threads=threads, open_until=config.workflow.open_until, **task.shown, **options
    )


def _gridworld(config: SearchConfig, num_envs: int, threads: int, options: dict[str, Any]) -> WorkflowEnvironment:
    return Gridworld(num_envs, **options)


def _cyborg(config: SearchConfig, num_envs: int, threads: int, options: dict[str, Any]) -> WorkflowEnvironment:
    original, task = config.original, config.task
    return WorkflowCyborg(
        Path(original.cyborg),
        num_envs,
        Path(original.cyborg_python) if original.cyborg_python else None,
        config.host,
        red=task.red,
        true_state_every=original.true_state_every or 1,
        open_until=config.workflow.open_until,
        **task.shown,
        **options,
    )


def _check_clone(config: SearchConfig) -> None:
    check_revision(Path(config.original.cyborg), config.task.revision)


@dataclass(frozen=True)
class Domain:
    """A domain that can be searched on."""

    subtasks: Subtasks
    make: Callable[[SearchConfig, int, int, dict[str, Any]], WorkflowEnvironment]
    gpu: bool = False  # whether it runs on a GPU
    hosted: bool = False  # whether games are hosted in workers, one training at a time
    portable: bool = True  # whether its policies can be used outside of a search
    check: Callable[[SearchConfig], None] = lambda _: None  # raises `ConfigError` if this machine lacks what it takes
    defaults: dict[str, Any] = field(default_factory=dict)  # settings that suit it, as plain data


DOMAINS = {
    "cage2": Domain(CAGE2, _cage2, gpu=True),
    "gridworld": Domain(
        GRIDWORLD,
        _gridworld,
        portable=False,
        defaults={
            "task": {"horizon": 40},
            "ppo": {"rollout_steps": 40, "hidden": [32], "learning_rate": 0.005},
            "n_workflows": 24,
        },
    ),
    "cyborg": Domain(
        CAGE2, _cyborg, hosted=True, check=_check_clone, defaults={"score_episodes": 50, "n_workflows": 10}
    ),
}


def domain_of(config: SearchConfig) -> Domain:
    return DOMAINS[config.target]


def subtasks_of(config: SearchConfig) -> Subtasks:
    return domain_of(config).subtasks


def given_orders(config: SearchConfig) -> list[Order]:
    """The orders named in the configuration; raises `ConfigError` for duplicates."""
    subtasks = subtasks_of(config)
    found = [subtasks.parse(text) for text in config.orders]
    if len(set(found)) < len(found):
        raise ConfigError("orders contains a duplicate; name each once, and use --rounds for more trainings of each")
    return found


def make_environment(
    config: SearchConfig, num_envs: int, *, stream: str = "train", seed: int | Sequence[int] = 0, threads: int = 0
) -> WorkflowEnvironment:
    """Makes a batch of environments of a search's domain."""
    options: dict[str, Any] = config.workflow.counting | {
        "gamma": config.ppo.gamma, "stream": stream, "seed": seed, "horizon": config.task.horizon,
        "timeout_is_terminal": config.ppo.timeout_is_terminal,
    }  # fmt: skip
    return domain_of(config).make(config, num_envs, threads, options)
