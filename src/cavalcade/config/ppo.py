"""Settings of PPO (Schulman et al. 2017)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from cavalcade.config.base import Settings, number, whole
from cavalcade.core.errors import ConfigError


@dataclass(frozen=True)
class CommonPPOConfig(Settings):
    """What feed-forward and recurrent policies share."""

    epochs: int = whole(4, 1)
    """Passes over the samples of an update."""
    learning_rate: float = number(2e-3, 0, 10)
    """Learning rate of the optimiser."""
    schedule: Literal["linear", "constant"] = "linear"
    """Whether the learning rate decays to 0 over the run."""
    gamma: float = number(0.99, 0, 1)
    """Discount factor γ."""
    gae_lambda: float = number(0.95, 0, 1)
    """λ of generalised advantage estimation."""
    clip: float = number(0.2, 0, 10)
    """PPO clip range ε."""
    value_coef: float = number(0.5, 0, 1e6)
    """Coefficient of the value loss."""
    value_clip: float = number(0.0, 0, 1e6)
    """Clip range of the value loss; 0 for no clipping. Needs --dedup off or auto."""
    entropy_coef: float = number(0.01, 0, 1e6)
    """Coefficient of the entropy bonus."""
    grad_clip: float = number(0.5, 0, 1e6)
    """Maximum gradient norm; 0 for no clipping."""
    target_kl: float = number(0.0, 0, 1e6)
    """Stop a policy's update once its approximate KL divergence exceeds 1.5 times this; 0 for no limit."""
    normalise_advantages: bool = True
    """Normalise advantages to zero mean, unit standard deviation."""
    normalise_returns: bool = True
    """Scale rewards by the running standard deviation of discounted returns."""
    timeout_is_terminal: bool = False
    """Treat a truncation as a termination instead of bootstrapping from the final observation."""
    grad_accum: int = whole(1, 1)
    """Gradient accumulation: pieces a minibatch is computed in. Same mathematics, less memory."""

    changeable: ClassVar[tuple[str, ...]] = (
        "epochs", "learning_rate", "schedule", "gamma", "gae_lambda", "clip", "value_coef", "value_clip",
        "entropy_coef", "grad_clip", "target_kl", "normalise_advantages", "timeout_is_terminal", "grad_accum",
    )  # fmt: skip


@dataclass(frozen=True)
class PPOConfig(CommonPPOConfig):
    """How a policy learns."""

    num_envs: int = whole(50, 1)
    """Environments per policy."""
    rollout_steps: int = whole(100, 1)
    """Steps of each environment between updates."""
    minibatches: int = whole(1, 1)
    """Minibatches per epoch."""
    normalise_observations: bool = False
    """Normalise observations by their running mean and standard deviation."""
    replay: int = whole(0, 0)
    """Recent rollouts to learn from again, with importance weights. Needs --engine torch."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic."""
    dedup: Literal["auto", "on", "off"] = "auto"
    """Compute each distinct observation once (same mathematics); auto where possible."""
    engine: Literal["auto", "cpu", "torch"] = "auto"
    """What computes PPO on the CPU: cpu, compiled kernels; torch, the reference in plain PyTorch; auto, the faster
    one that supports all settings."""

    changeable: ClassVar[tuple[str, ...]] = (*CommonPPOConfig.changeable, "minibatches", "dedup")

    def __post_init__(self):
        super().__post_init__()
        samples = self.num_envs * self.rollout_steps
        if samples % (self.minibatches * self.grad_accum):
            raise ConfigError(
                f"{self.num_envs} environments × {self.rollout_steps} steps = {samples} samples do not divide into "
                f"{self.minibatches} minibatches × {self.grad_accum} pieces"
            )
