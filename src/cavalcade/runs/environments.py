"""The environments of a run, by its configuration."""

from pathlib import Path

from cavalcade.config import AnyTrainConfig, CyborgTrainConfig, GymTrainConfig
from cavalcade.config_mettagrid import MettagridTrainConfig
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.record import revision_of
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
    task = config.task
    return Cage2(
        config.policies * config.ppo.num_envs,
        red=task.red,
        horizon=task.horizon,
        seed=config.seeds,
        threads=threads,
        first_index=first_index,
        **task.shown,
    )


def cyborg_for(config: CyborgTrainConfig) -> Cyborg:
    """The games of a run in CybORG."""
    task, found = config.task, revision_of(Path(config.cyborg))
    if found != task.revision:
        raise ConfigError(f"revision is {task.revision}; {config.cyborg} is {found}, give --revision {found}")
    return Cyborg(
        Path(config.cyborg),
        config.policies * config.ppo.num_envs,
        Path(config.cyborg_python) if config.cyborg_python else None,
        config.host,
        red=task.red,
        horizon=task.horizon,
        seed=config.seeds,
        true_state_every=config.host.true_state_every,
        **task.shown,
    )


def hosted_for(config: GymTrainConfig, num_envs: int, seed: int, first_index: int = 0) -> Hosted:
    """So many of a run's Gymnasium environments, from an index on."""
    host = config.host
    source = gym_source(config.name, config.options, infos=host.infos, true_state_every=host.true_state_every)
    return Hosted(source, num_envs, host, seed=seed, first_index=first_index)
