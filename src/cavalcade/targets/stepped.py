"""Settings with a budget of environment steps, shared by gym: and env:."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from cavalcade.config.base import RunConfig, whole, within
from cavalcade.config.io import parse_options
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class SteppedConfig(RunConfig):
    """A training run with a budget of environment steps."""

    ppo: PPOConfig = field(default_factory=PPOConfig)
    env_options: tuple[str, ...] = ()
    """Keyword arguments of the environment, each as name=value, e.g. is_slippery=false."""
    steps: int = whole(500_000, 1)
    """Budget of environment steps per policy, never exceeded."""
    monitor_every: int = whole(0, 0)
    """Updates between machine metrics: CPU, memory, GPU, waiting times; 0 for none."""

    free_to_change: ClassVar[tuple[str, ...]] = (*RunConfig.free_to_change, "monitor_every")
    changeable: ClassVar[tuple[str, ...]] = ("steps", *within("ppo", PPOConfig))

    def __post_init__(self):
        super().__post_init__()
        _ = self.options
        if not self.updates:
            raise ConfigError(
                f"{self.steps} steps are fewer than one update of {self.ppo.num_envs} environments × "
                f"{self.ppo.rollout_steps} steps; give more"
            )

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the environment."""
        return parse_options(self.env_options)

    @property
    def updates(self) -> int:
        """Updates within the budget of steps."""
        return self.steps // (self.ppo.num_envs * self.ppo.rollout_steps)
