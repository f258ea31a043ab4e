"""Chooses the encoder of hosted environments: perceptrons, or convolutions for images."""

from typing import Any

from cavalcade.config.encoder import EncoderConfig
from cavalcade.config.ppo import PPOConfig
from cavalcade.core.device import native_bf16
from cavalcade.core.errors import ConfigError
from cavalcade.core.images import SMALLEST
from cavalcade.ppo.engine import Convolutional
from cavalcade.targets.base import Setup
from cavalcade.vector.hosted import Hosted


def encoder_for(config: Any, env: Hosted, setup: Setup) -> tuple[Convolutional | None, list[str]]:
    """Convolutions or None for perceptrons, and for images a note that says which and why."""
    image, kind = env.source.shapes.image, config.encoding.encoder
    why_not = _why_not(config, setup)
    if kind == "cnn":
        if image is None:
            raise ConfigError(
                f"encoder is cnn; observations of {env.source.name} are not images: a Box of bytes or bounded floats, "
                f"two or three axes, at least {SMALLEST} × {SMALLEST}"
            )
        if why_not:
            raise ConfigError(f"encoder is cnn with {why_not}; use --encoder mlp")
    if image is None or setup.network is not None:
        for name in ("features", "precision"):
            if (value := getattr(config.encoding, name)) != getattr(EncoderConfig, name):
                raise ConfigError(f"{name} is {value}; it is of convolutions, and there are none here: leave it out")
        return None, []
    before = setup.network_before
    if kind == "mlp" or why_not or (before and "image" not in before):
        reason = why_not or ("--encoder mlp" if kind == "mlp" else "the run began with it")
        return None, [f"mlp encoder ({reason}): observations are flattened, although they are {image}"]
    if config.ppo.hidden != PPOConfig.hidden:
        raise ConfigError(f"hidden is {config.ppo.hidden} with convolutions; use --features, or --encoder mlp")
    half = config.encoding.precision == "bf16" or (config.encoding.precision == "auto" and native_bf16())
    network = Convolutional(image, config.encoding.features, half)
    return network, [f"cnn encoder{', bf16' * half}: observations are {image}"]


def _why_not(config: Any, setup: Setup) -> str:
    """What convolutions do not support, in words; empty if there is nothing."""
    if setup.network is not None:
        return "a custom network"
    if config.host.backend == "ray":
        return "backend ray"
    if config.host.lag:
        return f"staleness {config.host.lag}"
    return "engine cpu" if config.ppo.engine == "cpu" else ""
