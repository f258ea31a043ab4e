"""What all settings share: bounds beside the field, and the fields of every run."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from cavalcade.core.errors import ConfigError, at_least, seed_from


def whole(default: int, least: int) -> Any:
    """A field with a whole number not below a bound."""
    return dataclasses.field(default=default, metadata={"least": least})


def number(default: float | None, low: float, high: float) -> Any:
    """A field with a number within bounds, or None."""
    return dataclasses.field(default=default, metadata={"low": low, "high": high})


class Settings:
    """Checks the bounds of its fields. Subclasses are frozen dataclasses and add checks between fields."""

    def __post_init__(self):
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType] — subclasses are dataclasses
            value, bounds = getattr(self, field.name), field.metadata
            if "least" in bounds:
                at_least(field.name, value, bounds["least"])
            elif "low" in bounds and value is not None and not bounds["low"] <= value <= bounds["high"]:
                low, high = bounds["low"], bounds["high"]
                raise ConfigError(f"{field.name} is {value}; it must be from {low} to {high:g}")


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """The settings of every run."""

    target: str = ""
    """What is trained on."""
    seed: int = 0
    """Random seed."""
    checkpoint_every: int = whole(100, 0)
    """Updates between checkpoints; 0 writes one at the end only."""
    keep_checkpoints: int = whole(3, 1)
    """Checkpoints kept."""

    free_to_change: ClassVar[tuple[str, ...]] = ("checkpoint_every", "keep_checkpoints")
    """Settings that may differ when a run is resumed."""

    def __post_init__(self):
        super().__post_init__()
        seed_from("seed", self.seed)

    @property
    def updates(self) -> int:
        """Updates that fit into the budget; the budget is never exceeded."""
        raise NotImplementedError
