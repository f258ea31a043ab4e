"""Settings of recurrent policies: the network, PPO with backpropagation through time, auxiliary losses, the machine."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from cavalcade.config.base import Settings, number, whole
from cavalcade.config.ppo import CommonPPOConfig
from cavalcade.core.device import Device
from cavalcade.core.errors import ConfigError


@dataclass(frozen=True)
class TokenPolicyConfig(Settings):
    """The network."""

    encoder: Literal["bag", "conv", "perceiver"] = "bag"
    """Token encoder: sum of embeddings, convolutions, or attention."""
    core: Literal["none", "lstm", "gru"] = "lstm"
    """Recurrent core."""
    width: int = whole(128, 4)
    """Width of all layers."""

    def __post_init__(self):
        super().__post_init__()
        if self.width % 4:
            raise ConfigError(f"width is {self.width}; it must be a multiple of 4")


@dataclass(frozen=True)
class RecurrentPPOConfig(CommonPPOConfig):
    """How a recurrent policy learns: PPO on segments of experience, with backpropagation through time."""

    num_envs: int = whole(32, 1)
    """Arenas."""
    batch_size: int = whole(49_152, 1)
    """Agent-steps between updates: arenas × agents × a multiple of bptt_horizon."""
    minibatch_size: int = whole(6_144, 1)
    """Agent-steps per gradient step, whole segments."""
    bptt_horizon: int = whole(64, 1)
    """Steps of a segment: how far gradients are propagated through time."""
    epochs: int = whole(1, 1)
    """Passes over the samples of an update."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """muon: orthogonalised momentum for hidden matrices, AdamW for the rest."""
    learning_rate: float = number(1.5e-3, 0, 10)
    """Learning rate of the optimiser."""
    value_clip: float = number(0.0, 0, 1e6)
    """Clip range of the value loss; 0 for no clipping."""
    weight_decay: float = number(0.0, 0, 10)
    """Weight decay of adamw and muon."""
    vtrace: bool = False
    """Recompute advantages for each minibatch, corrected for how far the policy has moved since (V-trace)."""

    changeable: ClassVar[tuple[str, ...]] = (*CommonPPOConfig.changeable, "minibatch_size", "weight_decay", "vtrace")

    def __post_init__(self):
        super().__post_init__()
        if self.optimizer == "adam":
            self.refuse_without("--optimizer adamw or muon", "weight_decay")
        batch, size, horizon = self.batch_size, self.minibatch_size, self.bptt_horizon
        if batch % size:
            fits = _dividing(size, batch, horizon)
            remedy = f"--minibatch-size {fits}" if fits else f"--batch-size {_near(batch, size)}"
            raise ConfigError(f"batch_size {batch:,} does not divide into minibatch_size {size:,}; take {remedy}")
        if size % horizon:
            raise ConfigError(
                f"minibatch_size {size:,} does not divide into bptt_horizon {horizon:,}; take --minibatch-size "
                f"{_dividing(size, batch, horizon) or _near(size, horizon)}"
            )
        segments = self.minibatch_size // self.bptt_horizon
        if segments % self.grad_accum:
            raise ConfigError(
                f"grad_accum is {self.grad_accum}; it must divide the {segments} segments of {self.bptt_horizon} steps "
                "of a minibatch"
            )

    def steps(self, agents: int) -> int:
        """Steps of each agent between updates; refuses sizes that do not divide."""
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


def _dividing(size: int, whole: int, part: int) -> int:
    """The multiple of a part nearest to a size that divides the whole; 0 if there is none."""
    fits = (part * k for k in range(1, whole // part + 1) if whole % (part * k) == 0)
    return min(fits, key=lambda x: abs(x - size), default=0)


@dataclass(frozen=True)
class AuxiliaryConfig(Settings):
    """Prioritised sampling and auxiliary losses; all off by default."""

    priority_alpha: float = number(0.0, 0, 10)
    """Prioritised sampling: exponent α of a segment's mean absolute advantage; 0 takes each segment once."""
    priority_beta: float = number(0.6, 0, 1)
    """Initial importance correction β of prioritised sampling; it grows to 1 over the run."""
    teacher: str = ""
    """Kickstart: a run or checkpoint on the same task whose policy is imitated at first."""
    kickstart_action: float = number(1.0, 0, 1e6)
    """Coefficient of the cross-entropy to the teacher's actions."""
    kickstart_value: float = number(1.0, 0, 1e6)
    """Coefficient of the squared distance to the teacher's values."""
    kickstart_steps: int = whole(10_000_000, 1)
    """Agent-steps after which the teacher's weight is 0; it decays over the last 65 % of them."""
    contrastive_coef: float = number(0.0, 0, 1e6)
    """Coefficient of the contrastive loss (InfoNCE)."""
    contrastive_temperature: float = 0.1
    """Temperature of the contrastive loss."""
    contrastive_logsumexp: float = number(0.01, 0, 1e6)
    """Coefficient of its logsumexp regularisation."""

    changeable: ClassVar[tuple[str, ...]] = (
        "priority_alpha", "priority_beta", "teacher", "kickstart_action", "kickstart_value", "kickstart_steps",
        "contrastive_coef", "contrastive_temperature", "contrastive_logsumexp",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        if not self.priority_alpha:
            self.refuse_without("--priority-alpha", "priority_beta")
        if not self.teacher:
            self.refuse_without("--teacher", "kickstart_action", "kickstart_value", "kickstart_steps")
        if not self.contrastive_coef:
            self.refuse_without("--contrastive-coef", "contrastive_temperature", "contrastive_logsumexp")
        if not 0 < self.contrastive_temperature <= 100:
            raise ConfigError(
                f"contrastive_temperature is {self.contrastive_temperature}; it must be above 0 and at most 100"
            )


@dataclass(frozen=True)
class MachineConfig(Settings):
    """What the engine runs on."""

    device: Device = "auto"
    """Device of the network; auto: the GPU if there is one."""
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "fp32"
    """Precision of matrix products; weights stay in single precision. tf32 needs a GPU."""
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = "off"
    """Mode of torch.compile for the network."""
    offload: bool = False
    """Keep experience in pinned host memory instead of GPU memory."""

    changeable: ClassVar[tuple[str, ...]] = ("device", "precision", "compile", "offload")
