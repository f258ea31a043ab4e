"""Settings: frozen dataclasses, every field documented where it is declared; sizes are checked at construction."""

from dataclasses import dataclass, fields
from typing import Literal

from cavalcade.errors import ConfigError, at_least


@dataclass(frozen=True)
class PPOConfig:
    """How a policy learns (Schulman et al. 2017, with the options that came to be used with it)."""

    num_envs: int = 50
    """Environments per policy."""
    update_steps: int = 100
    """Steps of every environment between two updates."""
    epochs: int = 4
    """Passes over the samples of an update."""
    minibatches: int = 1
    """Minibatches per pass."""
    accumulate: int = 1
    """Pieces in which a minibatch's gradient is computed: the same mathematics, in less memory."""
    learning_rate: float = 2e-3
    """Step size of Adam."""
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
    """How far a value may move in an update before its loss is clipped; 0 for no clipping. Needs plain rows."""
    entropy_coef: float = 0.01
    """Weight of the entropy bonus."""
    grad_clip: float = 0.5
    """Largest norm of a gradient; 0 for no clipping."""
    target_kl: float = 0.0
    """A policy whose update has moved it 1.5 times this far (KL divergence) stops it there; 0 for no limit."""
    normalise_advantages: bool = True
    """Advantages to mean 0 and deviation 1, per update."""
    normalise_returns: bool = True
    """Scale rewards by the running deviation of discounted returns."""
    normalise_observations: bool = False
    """Shift and scale observations by their running mean and deviation."""
    horizon_ends: bool = False
    """Treat running out of time as the end of the game, instead of bootstrapping from the last observation."""
    replay: int = 0
    """Recent rollouts to learn from once more, with importance weights. Needs the torch learner."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers, of actor and critic alike."""
    rows: Literal["auto", "distinct", "plain"] = "auto"
    """distinct: compute each different observation once (same mathematics); auto: wherever that can be."""
    learner: Literal["auto", "fused", "torch"] = "auto"
    """fused: compiled kernels on the CPU; torch: the plain reference; auto: fused wherever it can be."""

    def __post_init__(self):
        for name in ("num_envs", "update_steps", "epochs", "minibatches", "accumulate"):
            at_least(name, getattr(self, name), 1)
        at_least("replay", self.replay, 0)
        samples = self.num_envs * self.update_steps
        if samples % (self.minibatches * self.accumulate):
            raise ConfigError(
                f"{self.num_envs} environments × {self.update_steps} steps = {samples} samples do not divide into "
                f"{self.minibatches} minibatches × {self.accumulate} pieces"
            )
        for name, low, high in (
            ("learning_rate", 0, 10), ("gamma", 0, 1), ("gae_lambda", 0, 1), ("clip", 0, 10), ("value_coef", 0, 1e6),
            ("value_clip", 0, 1e6), ("entropy_coef", 0, 1e6), ("grad_clip", 0, 1e6), ("target_kl", 0, 1e6),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be from {low} to {high:g}")


def differences(one: object, other: object) -> list[str]:
    """The settings in which two configurations differ, in words."""
    return [
        f"{f.name} {getattr(one, f.name)} → {getattr(other, f.name)}"
        for f in fields(one)  # pyright: ignore[reportArgumentType]
        if getattr(one, f.name) != getattr(other, f.name)
    ]
