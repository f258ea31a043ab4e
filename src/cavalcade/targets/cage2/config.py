"""Settings of training on CAGE-2."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from cavalcade.config.base import RunConfig, whole, within
from cavalcade.config.io import differences
from cavalcade.config.memory import MemoryConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.config.workflow import WorkflowConfig
from cavalcade.core.device import Device
from cavalcade.core.errors import ConfigError, one_of
from cavalcade.envs.cage2.changes import Scenario
from cavalcade.envs.cage2.reward import HORIZONS
from cavalcade.envs.cage2.scenario import REDS
from cavalcade.envs.cage2.task import Cage2Task


@dataclass(frozen=True, kw_only=True)
class Cage2BaseConfig(RunConfig):
    """Settings shared by our simulator and the original CybORG."""

    task: Cage2Task = field(default_factory=Cage2Task)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    workflow: WorkflowConfig = field(default_factory=WorkflowConfig)
    order: str = ""
    """Repair order of host types, by name (critical_first) or as types joined with >. Empty for no order."""
    episodes: int = whole(100_000, 1)
    """Budget of episodes per policy, never exceeded."""
    seed: int = 0
    """Seed of the first policy; the others use the following seeds."""
    policies: int = whole(1, 1)
    """Policies trained side by side, each with its own seed."""
    monitor_every: int = whole(0, 0)
    """Updates between machine metrics: CPU, memory, GPU, waiting times; 0 for none."""
    checkpoint_every: int = whole(500, 0)
    """Updates between checkpoints; 0 writes one at the end only."""

    free_to_change: ClassVar[tuple[str, ...]] = (*RunConfig.free_to_change, "monitor_every")
    changeable: ClassVar[tuple[str, ...]] = ("episodes", *within("ppo", PPOConfig))

    def __post_init__(self):
        super().__post_init__()
        one_of("target", self.target, (type(self).target,))
        if not self.order and differences(WorkflowConfig(), self.workflow):
            enforce = self.workflow.enforce  # an alignment option alone selects reward, which fills in the others
            given = differences(WorkflowConfig(enforce), self.workflow)
            name = given[0].split()[0] if given else "enforce or alignment" if enforce == "reward" else "enforce"
            raise ConfigError(f"{name} is given without an order; name one with --order")
        if not self.updates:
            raise ConfigError(
                f"{self.episodes} episodes of {self.task.horizon} steps are fewer than one update of "
                f"{self.ppo.num_envs} environments × {self.ppo.rollout_steps} steps; give more episodes"
            )

    @property
    def updates(self) -> int:
        """Updates within the budget of episodes."""
        return self.episodes * self.task.horizon // (self.ppo.num_envs * self.ppo.rollout_steps)

    @property
    def changes(self) -> Scenario:
        """Changes to the scenario of the challenge."""
        return Scenario()

    @property
    def seeds(self) -> list[int]:
        return list(range(self.seed, self.seed + self.policies))


@dataclass(frozen=True, kw_only=True)
class Cage2Config(Cage2BaseConfig):
    """A training run on CAGE-2."""

    target: str = "cage2"
    """Training target."""
    recurrence: MemoryConfig = field(default_factory=MemoryConfig)
    device: Device = "auto"
    """Device of simulation and training; auto: a GPU if there is one that supports all settings."""
    scenario: Scenario = field(default_factory=Scenario)
    objective: Literal["return", "protocol"] = "return"
    """What training maximises: the return, or the nine-cell score of the official protocol, in which a step counts as
    often as the horizons 30, 50 and 100 include it. Logged returns are then weighted too."""
    critic: Literal["observation", "true-state"] = "observation"
    """What the critic sees: the observation, or the hidden state besides it; the policy never sees that."""
    precision: Literal["fp32", "tf32", "bf16"] = "tf32"
    """On a GPU: precision of matrix products; weights stay in fp32."""

    free_to_change: ClassVar[tuple[str, ...]] = (*Cage2BaseConfig.free_to_change, "device", "precision")

    def __post_init__(self):
        super().__post_init__()
        if self.scenario.red_delay and self.task.red not in REDS:
            raise ConfigError(f"red_delay is {self.scenario.red_delay} with red {self.task.red}; let it wait by itself")
        if self.objective == "protocol" and self.task.horizon != HORIZONS[-1]:
            raise ConfigError(
                f"objective is protocol with horizon {self.task.horizon}; the protocol plays {HORIZONS[-1]} steps"
            )
        if self.critic != "observation" and "truth" in self.task.extras:
            raise ConfigError(f"critic is {self.critic} and extras has truth, which the policy sees; leave one out")
        if self.recurrence.memory != "none":
            self.recurrence.ppo(self.ppo)
            if self.critic != "observation":
                raise ConfigError(
                    f"critic is {self.critic} with memory {self.recurrence.memory}; recurrent networks share their "
                    "memory with the policy, leave one out"
                )
            if self.policies > 1:
                raise ConfigError(
                    f"policies is {self.policies} with memory {self.recurrence.memory}; train one policy per run"
                )
        if self.device == "cpu" and self.precision != type(self).precision:
            raise ConfigError(f"precision is {self.precision} with device cpu; it applies to GPUs only, leave it out")

    @property
    def changes(self) -> Scenario:
        return self.scenario
