"""The environments of a run, by its configuration."""

from pathlib import Path
from typing import Any

from cavalcade.config import AnyTrainConfig, CyborgTrainConfig, GymTrainConfig, TrainConfig
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.cyborg_workflow import WorkflowCyborg
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.record import revision_of
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.envs.contract import Environment
from cavalcade.errors import ConfigError
from cavalcade.runs.mettagrid import arenas
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source


def environment_for(config: AnyTrainConfig, threads: int, first_index: int = 0) -> Environment:
    """The environments of all policies of a training, of which each policy's first has an index."""
    if isinstance(config, GymTrainConfig):
        return hosted_for(config, config.ppo.num_envs, config.seed, first_index)
    if isinstance(config, MettagridTrainConfig):
        return arenas(config, first_index)
    if isinstance(config, CyborgTrainConfig):
        return cyborg_for(config)
    options: dict[str, Any] = {
        "red": config.task.red, "horizon": config.task.horizon, "seed": config.seeds, "threads": threads,
        "first_index": first_index, **config.task.shown,
    }  # fmt: skip
    num_envs = config.policies * config.ppo.num_envs
    if not config.order:
        return Cage2(num_envs, **options)
    return _with_order(WorkflowCage2(num_envs, **options, **_workflow_options(config)), config)


def _workflow_options(config: TrainConfig) -> dict[str, Any]:
    """What games with the order of a training are made with; the order says nothing where all have the same."""
    w, learning = config.workflow, {"gamma": config.ppo.gamma, "horizon_ends": config.ppo.horizon_ends}
    return w.counting | learning | {"open_until": w.open_until, "show_order": False}


def _with_order(env: WorkflowCage2, config: TrainConfig) -> WorkflowCage2:
    env.give_order(slice(None), order=CAGE2.parse(config.order), shown=False, **config.workflow.binding)
    return env


def cyborg_for(config: CyborgTrainConfig) -> Cyborg:
    """The games of a run in CybORG."""
    task, found = config.task, revision_of(Path(config.cyborg))
    if found != task.revision:
        raise ConfigError(f"revision is {task.revision}; {config.cyborg} is {found}, give --revision {found}")
    options: dict[str, Any] = {
        "red": task.red, "horizon": task.horizon, "seed": config.seeds,
        "true_state_every": config.host.true_state_every, **task.shown,
    }  # fmt: skip
    python = Path(config.cyborg_python) if config.cyborg_python else None
    where = (Path(config.cyborg), config.policies * config.ppo.num_envs, python, config.host)
    if not config.order:
        return Cyborg(*where, **options)
    options["true_state_every"] = config.host.true_state_every or 1
    env = WorkflowCyborg(*where, **options, **_workflow_options(config))
    _with_order(env, config)
    return env


def hosted_for(config: GymTrainConfig, num_envs: int, seed: int, first_index: int = 0) -> Hosted:
    """So many of a run's Gymnasium environments, from an index on."""
    host = config.host
    source = gym_source(config.name, config.options, infos=host.infos, true_state_every=host.true_state_every)
    return Hosted(source, num_envs, host, seed=seed, first_index=first_index)
