"""CAGE-2 in our simulator, on the CPU or on a GPU."""

from dataclasses import replace
from typing import Any

import torch

from cavalcade.core.device import device_named
from cavalcade.core.errors import ConfigError
from cavalcade.core.threads import cores
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.changes import not_the_challenge
from cavalcade.envs.cage2.red_choice import slow_red
from cavalcade.envs.cage2.workflow import WorkflowCage2
from cavalcade.ppo.distributed import Ranks
from cavalcade.ppo.engines.cuda.engine import CudaEngine
from cavalcade.targets.base import Prepared, Setup
from cavalcade.targets.cage2.config import Cage2Config
from cavalcade.targets.cage2.gpu import cuda_device, cuda_engine
from cavalcade.targets.cage2.shared import Cage2BaseTarget, with_order, workflow_options
from cavalcade.targets.population import check_ranks, prepare_population
from cavalcade.targets.recurrent import prepare_recurrent


class Cage2Target(Cage2BaseTarget):
    """CAGE Challenge 2."""

    name = "cage2"
    Config = Cage2Config

    def make_env(self, config: Cage2Config, threads: int = 0, first_index: int = 0) -> Cage2:
        """The games of all policies, with the workflow order if one is set."""
        options: dict[str, Any] = {
            "red": config.task.red, "horizon": config.task.horizon, "seed": config.seeds, "threads": threads,
            "first_index": first_index, "scenario": config.scenario, "objective": config.objective,
            "critic": config.critic, **config.task.shown,
        }  # fmt: skip
        num_envs = config.policies * config.ppo.num_envs
        if not config.order:
            return Cage2(num_envs, **options)
        return with_order(WorkflowCage2(num_envs, **options, **workflow_options(config)), config)

    def prepare(self, config: Cage2Config, setup: Setup) -> Prepared:
        """Trains on a GPU if there is one that supports all settings, else on CPU threads."""
        if config.recurrence.memory != "none":
            return self._recurrent(config, setup)
        if setup.ranks.size > 1:
            found = prepare_population(self.make_env, config, setup)
            if torch.cuda.is_available():
                found.notes.append("on CPUs: only mettagrid trains on GPUs with several ranks")
            found.notes[:0] = not_the_challenge(config.scenario)
            return found
        name = config.device
        if setup.engine_before and name == "auto":  # a resumed run keeps its device
            name = "cuda" if setup.engine_before == CudaEngine.name else "cpu"
        device, notes = cuda_device(name, config.ppo, config.task)
        notes = not_the_challenge(config.scenario) + notes
        if device.type == "cpu":
            if config.precision != type(config).precision:
                notes.append(f"precision {config.precision} has no effect on the CPU")
            found = prepare_population(self.make_env, config, setup)
            return replace(found, notes=[*notes, *slow_red(config.task.red), *found.notes])
        env = self.make_env(config, 1)
        engine = cuda_engine(env, config.ppo, config.seeds, device, config.precision)
        return Prepared(engine, 0, [*notes, f"on {torch.cuda.get_device_name(device)}", *engine.notes])

    def _recurrent(self, config: Cage2Config, setup: Setup) -> Prepared:
        """Games on CPU threads, the policy on a GPU if there is one."""
        device = device_named(config.device)
        threads = setup.threads or cores()
        env = self.make_env(config, threads, setup.first_index)
        return prepare_recurrent(env, config, setup, device=device, precision=config.precision)

    def share(self, config: Cage2Config, ranks: Ranks) -> Cage2Config:
        """Splits the environments of one policy over the ranks, on CPUs."""
        if config.device == "cuda":
            raise ConfigError("device is cuda on several ranks; ranks train on CPUs, leave out --device")
        check_ranks(config)
        return super().share(config, ranks)


TARGET = Cage2Target()
