"""Settings of the network's first part: how observations of hosted environments are encoded."""

from dataclasses import dataclass
from typing import Literal

from cavalcade.config.base import Settings, whole
from cavalcade.core.errors import ConfigError


@dataclass(frozen=True)
class EncoderConfig(Settings):
    """How observations are encoded."""

    encoder: Literal["auto", "mlp", "cnn"] = "auto"
    """mlp: perceptrons on flattened observations; cnn: convolutions that actor and critic share; auto: cnn for
    images."""
    features: int = whole(0, 0)
    """With convolutions: width of the dense layer after them; 0 for 512, or 128 for images below 36 × 36."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """With convolutions: precision of their products, weights stay in fp32; auto: bf16 if the CPU has AVX512-BF16 or
    AMX."""
    frame_stack: int = whole(1, 1)
    """Latest observations that the policy sees, oldest first; a new episode begins with copies of its first."""

    def __post_init__(self):
        super().__post_init__()
        if self.features and self.encoder == "mlp":
            raise ConfigError(f"features is {self.features} with encoder mlp; use --hidden")
        if self.precision != type(self).precision and self.encoder == "mlp":
            raise ConfigError(f"precision is {self.precision} with encoder mlp; it is of convolutions, leave it out")
