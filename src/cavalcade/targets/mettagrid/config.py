"""Settings of training on MettaGrid."""

from dataclasses import dataclass, field
from typing import ClassVar

from cavalcade.config.base import RunConfig, whole, within
from cavalcade.config.hosting import HostConfig
from cavalcade.config.recurrent import AuxiliaryConfig, MachineConfig, RecurrentPPOConfig, TokenPolicyConfig
from cavalcade.core.errors import ConfigError, one_of
from cavalcade.envs.mettagrid.task import MettagridTask


@dataclass(frozen=True, kw_only=True)
class MettagridConfig(RunConfig):
    """A training run on MettaGrid."""

    arena: MettagridTask = field(default_factory=MettagridTask)
    policy: TokenPolicyConfig = field(default_factory=TokenPolicyConfig)
    ppo: RecurrentPPOConfig = field(default_factory=RecurrentPPOConfig)
    auxiliary: AuxiliaryConfig = field(default_factory=AuxiliaryConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
    host: HostConfig = field(default_factory=HostConfig)
    target: str = "mettagrid"
    """Training target."""
    steps: int = whole(20_000_000, 1)
    """Budget of agent-steps, never exceeded."""
    seed: int = 0
    """Seed of policy, maps and arenas."""
    evaluate_every: int = whole(0, 0)
    """Updates between scores on held-out maps; 0 scores at the end only."""
    record_every: int = whole(0, 0)
    """Updates between episodes recorded for MettaScope in the run directory; 0 for none."""
    statistics_every: int = whole(0, 0)
    """Updates between statistics of weights and gradients per layer; 0 for none."""
    monitor_every: int = whole(10, 0)
    """Updates between machine metrics: CPU, memory, GPU, waiting times; 0 for none."""
    profile_every: int = whole(0, 0)
    """Updates between profiles of one update (torch.profiler) in the run directory; 0 for none."""

    free_to_change: ClassVar[tuple[str, ...]] = (
        *RunConfig.free_to_change, "evaluate_every", "record_every", "statistics_every", "monitor_every",
        "profile_every",
    )  # fmt: skip
    changeable: ClassVar[tuple[str, ...]] = (
        "steps", *within("ppo", RecurrentPPOConfig), *within("auxiliary", AuxiliaryConfig),
        *within("machine", MachineConfig), *within("host", HostConfig),
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        one_of("target", self.target, (type(self).target,))
        if not self.updates:
            raise ConfigError(f"{self.steps} steps are fewer than one update of {self.ppo.batch_size:,}; give more")

    @property
    def updates(self) -> int:
        """Updates within the budget of steps."""
        return self.steps // self.ppo.batch_size

    @property
    def seeds(self) -> list[int]:
        return [self.seed]
