"""Where learning runs: on the CPU or on a GPU."""

from typing import Literal

import torch

from cavalcade.errors import ConfigError

Device = Literal["auto", "cpu", "cuda"]


def device_named(name: Device) -> torch.device:
    """The device meant; auto is the GPU if there is one."""
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ConfigError("device is cuda, but torch sees no GPU here; take --device cpu")
    return torch.device("cuda" if there and name != "cpu" else "cpu")
