"""The device that training runs on: the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from cavalcade.core.errors import ConfigError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda"]


def device_named(name: Device) -> torch.device:
    """The torch device; auto is the GPU if there is one, else the CPU."""
    import torch  # slow to import, and settings only need the names

    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise ConfigError("device is cuda, but torch sees no GPU here; take --device cpu")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def learner_device(name: Device) -> torch.device:
    """The device of updates from environments that step on the CPU; auto is the CPU."""
    return device_named("cpu" if name == "auto" else name)


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """Sets the precision of float32 matrix products on a GPU within the block: TF32 or full."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def native_bf16() -> bool:
    """Whether the CPU multiplies bfloat16 in hardware."""
    import torch

    asked = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(supported() for supported in asked if supported)
