"""CAGE-2 in the original CybORG: the user's checkout, hosted in workers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cavalcade.config.base import within
from cavalcade.config.hosting import HostConfig
from cavalcade.core.device import Device, learner_device
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.cyborg import Cyborg, CyborgGames, cyborg_source
from cavalcade.envs.cage2.cyborg_workflow import WorkflowCyborg
from cavalcade.envs.cage2.record import check_revision
from cavalcade.envs.cage2.task import Original
from cavalcade.ppo.distributed import Ranks
from cavalcade.targets.base import Prepared, Setup
from cavalcade.targets.cage2.config import Cage2BaseConfig
from cavalcade.targets.cage2.shared import Cage2BaseTarget, with_order, workflow_options
from cavalcade.targets.fragments import prepare_fragments
from cavalcade.targets.population import prepare_population


@dataclass(frozen=True, kw_only=True)
class CyborgConfig(Cage2BaseConfig):
    """A training run in the original CybORG."""

    target: str = "cyborg"
    """Training target."""
    original: Original = field(default_factory=Original)
    host: HostConfig = field(default_factory=HostConfig)
    device: Device = "auto"
    """Device of the updates: cuda, a GPU; auto is the CPU."""

    free_to_change: ClassVar[tuple[str, ...]] = (*Cage2BaseConfig.free_to_change, "device")
    changeable: ClassVar[tuple[str, ...]] = (
        *Cage2BaseConfig.changeable, *within("host", HostConfig), "original.cyborg", "original.cyborg_python"
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        if not self.original.cyborg:
            raise ConfigError("target is cyborg without --cyborg; name your clone of cage-challenge/cage-challenge-2")
        if self.original.true_state_every and not self.order:
            raise ConfigError(
                f"true_state_every is {self.original.true_state_every} without an order; the true state is read for "
                "compliance only, name an order with --order"
            )
        if self.host.backend == "ray" and self.original.cyborg_python:
            raise ConfigError(
                f"backend is ray with cyborg_python {self.original.cyborg_python}; actors run CybORG in Ray's own "
                "interpreter, install its requirements there"
            )
        if self.host.lag and (why := self._why_not_stale()):
            raise ConfigError(f"staleness is {self.host.lag} with {why}; use --staleness 0")

    def _why_not_stale(self) -> str:
        """What workers that act by themselves do not support, in words; empty if there is nothing."""
        if self.order:
            return "an order, which the learner tracks step by step"
        if self.task.extras:
            return f"extras {', '.join(self.task.extras)}, which the learner adds step by step"
        if self.policies > 1:
            return f"{self.policies} policies, and workers hold one"
        return f"replay {self.ppo.replay}" if self.ppo.replay else ""


class CyborgTarget(Cage2BaseTarget):
    """The original CybORG."""

    name = "cyborg"
    Config = CyborgConfig

    def make_env(self, config: CyborgConfig, threads: int = 0, first_index: int = 0) -> Cyborg | CyborgGames:
        task, original = config.task, config.original
        check_revision(Path(original.cyborg), task.revision)
        options: dict[str, Any] = {"red": task.red, "horizon": task.horizon, "seed": config.seeds, **task.shown}
        python = Path(original.cyborg_python) if original.cyborg_python else None
        if config.host.lag:
            played = {"red": task.red, "green": task.green, "horizon": task.horizon}
            source = cyborg_source(Path(original.cyborg), python, **played)
            return CyborgGames(source, config.ppo.num_envs, config.host, seed=config.seed)
        where = (Path(original.cyborg), config.policies * config.ppo.num_envs, python, config.host)
        if not config.order:
            return Cyborg(*where, **options)
        options["true_state_every"] = original.true_state_every or 1
        env = WorkflowCyborg(*where, **options, **workflow_options(config))
        with_order(env, config)
        return env

    def prepare(self, config: CyborgConfig, setup: Setup) -> Prepared:
        """Hosts the games in workers and trains on CPU threads."""
        if not config.host.lag:
            return prepare_population(self.make_env, config, setup, device=learner_device(config.device))
        env = self.make_env(config)
        assert isinstance(env, CyborgGames)
        try:
            return prepare_fragments(env, config, setup)
        except BaseException:
            env.close()
            raise

    def share(self, config: CyborgConfig, ranks: Ranks) -> CyborgConfig:
        raise ConfigError("target is cyborg on several ranks; only cage2, mettagrid and gym: support ranks")


TARGET = CyborgTarget()
