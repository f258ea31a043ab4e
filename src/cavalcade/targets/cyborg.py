"""CAGE-2 in the original CybORG: the user's checkout, hosted in workers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cavalcade.config.base import within
from cavalcade.config.hosting import WorkerConfig
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.cyborg import Cyborg
from cavalcade.envs.cage2.cyborg_workflow import WorkflowCyborg
from cavalcade.envs.cage2.record import revision_of
from cavalcade.envs.cage2.task import Original
from cavalcade.ppo.distributed import Ranks
from cavalcade.targets.base import Prepared, Setup
from cavalcade.targets.cage2.config import Cage2BaseConfig
from cavalcade.targets.cage2.shared import Cage2BaseTarget, with_order, workflow_options
from cavalcade.targets.population import prepare_population


@dataclass(frozen=True, kw_only=True)
class CyborgConfig(Cage2BaseConfig):
    """A training run in the original CybORG."""

    target: str = "cyborg"
    """Training target."""
    original: Original = field(default_factory=Original)
    host: WorkerConfig = field(default_factory=WorkerConfig)

    changeable: ClassVar[tuple[str, ...]] = (
        *Cage2BaseConfig.changeable, *within("host", WorkerConfig), "original.cyborg", "original.cyborg_python"
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


class CyborgTarget(Cage2BaseTarget):
    """The original CybORG."""

    name = "cyborg"
    Config = CyborgConfig

    def make_env(self, config: CyborgConfig, threads: int = 0, first_index: int = 0) -> Cyborg:
        task, original = config.task, config.original
        found = revision_of(Path(original.cyborg))
        if found != task.revision:
            raise ConfigError(f"revision is {task.revision}; {original.cyborg} is {found}, give --revision {found}")
        options: dict[str, Any] = {"red": task.red, "horizon": task.horizon, "seed": config.seeds, **task.shown}
        python = Path(original.cyborg_python) if original.cyborg_python else None
        where = (Path(original.cyborg), config.policies * config.ppo.num_envs, python, config.host)
        if not config.order:
            return Cyborg(*where, **options)
        options["true_state_every"] = original.true_state_every or 1
        env = WorkflowCyborg(*where, **options, **workflow_options(config))
        with_order(env, config)
        return env

    def prepare(self, config: CyborgConfig, setup: Setup) -> Prepared:
        """Hosts the games in workers and trains on CPU threads."""
        return prepare_population(self.make_env, config, setup)

    def share(self, config: CyborgConfig, ranks: Ranks) -> CyborgConfig:
        raise ConfigError("target is cyborg on several ranks; only cage2, mettagrid and gym: support ranks")


TARGET = CyborgTarget()
