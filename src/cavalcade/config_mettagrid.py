"""Settings of trainings on MettaGrid."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import yaml

from cavalcade.config import HostConfig
from cavalcade.device import Device
from cavalcade.errors import ConfigError, at_least, one_of, seed_from


@dataclass(frozen=True)
class MettagridTask:
    """Which arena is played."""

    task: str = "forage"
    """forage, forage-easy, forage-sparse, navigation; or a MettaGridConfig: a YAML or JSON file, or module:function."""
    env_options: tuple[str, ...] = ()
    """Options of the task, each as name=value, e.g. agents=4."""
    max_tokens: int = 128
    """Tokens of an observation that are kept, the nearest first; how many had more is counted."""
    stats: tuple[str, ...] = ()
    """Statistics of MettaGrid that are kept of each agent's episode, e.g. heart.gained."""

    def __post_init__(self):
        at_least("max_tokens", self.max_tokens, 1)
        if wrong := [text for text in self.env_options if not text.partition("=")[0] or "=" not in text]:
            raise ConfigError(f"env_options has {wrong[0]!r}; each must be name=value")
        try:
            _ = self.options
        except yaml.YAMLError:
            raise ConfigError(
                f"env_options {' '.join(self.env_options)} cannot be read; quote values as in YAML"
            ) from None

    @property
    def options(self) -> dict[str, Any]:
        """The options; values are read as YAML."""
        pairs = (text.partition("=") for text in self.env_options)
        return {name: yaml.safe_load(value) for name, _, value in pairs}


@dataclass(frozen=True)
class TokenPolicyConfig:
    """The network."""

    encoder: Literal["bag", "conv", "perceiver"] = "bag"
    """How tokens are read: sums of embeddings, convolutions, or attention."""
    core: Literal["none", "lstm", "gru"] = "lstm"
    """What remembers."""
    width: int = 128
    """Of all layers."""

    def __post_init__(self):
        if at_least("width", self.width, 4) % 4:
            raise ConfigError(f"width is {self.width}; it must be a multiple of 4")


@dataclass(frozen=True)
class BpttConfig:
    """How a policy with memory learns: PPO on segments of experience, back through time."""

    num_envs: int = 32
    """Arenas."""
    batch_size: int = 49_152
    """Agent-steps between two updates: arenas × agents × a multiple of bptt_horizon."""
    minibatch_size: int = 6_144
    """Agent-steps per gradient, whole segments."""
    bptt_horizon: int = 64
    """Steps of a segment: how far gradients go back in time."""
    epochs: int = 1
    """Passes over the samples of an update."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """muon: orthogonalised momentum for matrices of hidden layers, AdamW for the rest."""
    learning_rate: float = 1.5e-3
    """Step size."""
    weight_decay: float = 0.0
    """With adamw and muon."""
    schedule: Literal["linear", "constant"] = "linear"
    """Whether the learning rate falls to 0 over the run."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """ε: how far the probability ratio counts."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    value_clip: float = 0.0
    """How far a value may move in an update before its loss is clipped; 0 for no clipping."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    grad_clip: float = 0.5
    """Largest norm of a gradient; 0 for no clipping."""
    target_kl: float = 0.0
    """An update that has moved the policy 1.5 times this far (KL divergence) stops there; 0 for no limit."""
    normalise_advantages: bool = True
    """Advantages to mean 0 and deviation 1, per update."""
    normalise_returns: bool = True
    """Scale rewards by the running deviation of discounted returns."""
    horizon_ends: bool = False
    """Treat running out of time as the end of the game, instead of bootstrapping from the last observation."""
    vtrace: bool = False
    """Advantages anew for each minibatch, corrected for how far the policy has moved since (V-trace)."""

    def __post_init__(self):
        for name in ("num_envs", "batch_size", "minibatch_size", "bptt_horizon", "epochs"):
            at_least(name, getattr(self, name), 1)
        for whole, part in (("batch_size", "minibatch_size"), ("minibatch_size", "bptt_horizon")):
            a, b = getattr(self, whole), getattr(self, part)
            if a % b:
                raise ConfigError(f"{whole} {a:,} does not divide into {part} {b:,}; take {_near(a, b)}")
        for name, low, high in (
            ("learning_rate", 0, 10), ("gamma", 0, 1), ("gae_lambda", 0, 1), ("clip", 0, 10), ("value_coef", 0, 1e6),
            ("value_clip", 0, 1e6), ("entropy_coef", 0, 1e6), ("grad_clip", 0, 1e6), ("target_kl", 0, 1e6),
            ("weight_decay", 0, 10),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be from {low} to {high:g}")

    def steps(self, agents: int) -> int:
        """Steps of every agent between two updates; refuses sizes that do not divide."""
        round_ = agents * self.bptt_horizon
        if self.batch_size % round_:
            raise ConfigError(
                f"batch_size {self.batch_size:,} does not divide into {agents:,} agents × bptt_horizon "
                f"{self.bptt_horizon} = {round_:,}; take --batch-size {_near(self.batch_size, round_)}"
            )
        return self.batch_size // agents


def _near(size: int, part: int) -> int:
    """The nearest multiple of a part."""
    return max(1, round(size / part)) * part


@dataclass(frozen=True)
class ExtrasConfig:
    """What else a policy may learn by; all off unless asked for."""

    priority_alpha: float = 0.0
    """Prefer segments with large advantages, by this power of them; 0 takes each segment once."""
    priority_beta: float = 0.6
    """Correction for that preference at the start (β); it grows to 1, full correction, over the run."""
    teacher: str = ""
    """A run or checkpoint on the same task, whose policy is imitated at first (kickstart)."""
    kickstart_action: float = 1.0
    """Weight of the teacher's actions."""
    kickstart_value: float = 1.0
    """Weight of the teacher's values."""
    kickstart_steps: int = 10_000_000
    """Agent-steps after which the teacher is gone; its weight falls over the last 65 % of them."""
    contrastive_coef: float = 0.0
    """Weight of telling what follows in an episode from what does not (InfoNCE)."""
    contrastive_temperature: float = 0.1
    """Of its similarities."""
    contrastive_logsumexp: float = 0.01
    """Weight of keeping similarities small."""

    def __post_init__(self):
        for name, high in (
            ("priority_alpha", 10), ("priority_beta", 1), ("kickstart_action", 1e6), ("kickstart_value", 1e6),
            ("contrastive_coef", 1e6), ("contrastive_logsumexp", 1e6),
        ):  # fmt: skip
            if not 0 <= getattr(self, name) <= high:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be from 0 to {high:g}")
        at_least("kickstart_steps", self.kickstart_steps, 1)
        if not 0 < self.contrastive_temperature <= 100:
            raise ConfigError(
                f"contrastive_temperature is {self.contrastive_temperature}; it must be above 0 and at most 100"
            )


@dataclass(frozen=True)
class MachineConfig:
    """What the learner runs on."""

    device: Device = "auto"
    """Where the network lives; auto: on the GPU if there is one."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of products of matrices; weights stay in single precision."""
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    """Compile the network with torch.compile, in this mode."""
    offload: bool = False
    """Keep the experience in pinned memory of the host instead of the GPU's."""


@dataclass(frozen=True)
class MettagridTrainConfig:
    """A training run on MettaGrid."""

    arena: MettagridTask = field(default_factory=MettagridTask)
    policy: TokenPolicyConfig = field(default_factory=TokenPolicyConfig)
    ppo: BpttConfig = field(default_factory=BpttConfig)
    extras: ExtrasConfig = field(default_factory=ExtrasConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
    host: HostConfig = field(default_factory=HostConfig)
    target: str = "mettagrid"
    """What is trained on."""
    steps: int = 20_000_000
    """Agent-steps, never exceeded."""
    seed: int = 0
    """Seed of policy, maps and arenas."""
    checkpoint_every: int = 100
    """Updates between checkpoints; 0 for one at the end only."""
    keep: int = 3
    """Checkpoints kept."""
    evaluate_every: int = 0
    """Updates between scores on held-out maps; 0 for one at the end only."""
    replay_every: int = 0
    """Updates between recorded episodes, for MettaScope, in the run's folder; 0 for none."""
    statistics_every: int = 0
    """Updates between statistics of weights and gradients, layer by layer; 0 for none."""
    monitor_every: int = 10
    """Updates between looks at the machine: processor, memory, GPU, who waits for whom; 0 for none."""
    profile_every: int = 0
    """Updates between profiles of one update (torch.profiler), in the run's folder; 0 for none."""

    free_to_change: ClassVar[tuple[str, ...]] = (
        "checkpoint_every", "keep", "evaluate_every", "replay_every", "statistics_every", "monitor_every",
        "profile_every",
    )  # fmt: skip

    def __post_init__(self):
        one_of("target", self.target, (type(self).target,))
        seed_from("seed", self.seed)
        at_least("steps", self.steps, 1)
        at_least("keep", self.keep, 1)
        for name in self.free_to_change:
            at_least(name, getattr(self, name), 0)
        if self.host.true_state_every or self.host.infos:
            raise ConfigError("MettaGrid has neither true states nor infos; leave out --true-state-every and --infos")
        if not self.updates:
            raise ConfigError(f"{self.steps} steps are fewer than one update of {self.ppo.batch_size:,}; give more")

    @property
    def name(self) -> str:
        """For folders."""
        return f"mettagrid-{self.arena.task}"

    @property
    def updates(self) -> int:
        """Updates that fit into the budget of steps."""
        return self.steps // self.ppo.batch_size

    @property
    def seeds(self) -> list[int]:
        """The policy's seed."""
        return [self.seed]
