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


def within(name: str, kind: "type[Settings]") -> tuple[str, ...]:
    """The changeable settings of a group, as the configuration that has the group names them."""
    return tuple(f"{name}.{setting}" for setting in kind.changeable)


class Settings:
    """Checks the bounds of its fields. Subclasses are frozen dataclasses and add checks between fields."""

    changeable: ClassVar[tuple[str, ...]] = ()
    """Settings that may change when a run is resumed: the saved state does not depend on them."""

    def __post_init__(self):
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType] — subclasses are dataclasses
            value, bounds = getattr(self, field.name), field.metadata
            if "least" in bounds:
                at_least(field.name, value, bounds["least"])
            elif "low" in bounds and value is not None and not bounds["low"] <= value <= bounds["high"]:
                low, high = bounds["low"], bounds["high"]
                raise ConfigError(f"{field.name} is {value}; it must be from {low} to {high:g}")

    def refuse_without(self, needed: str, *names: str) -> None:
        """Raises `ConfigError` if one of these settings is given, which have no effect without another."""
        for field in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            if field.name in names and (value := getattr(self, field.name)) != field.default:
                raise ConfigError(f"{field.name} is {value}; it has no effect without {needed}")


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
    """Settings that have no effect on results; they may differ when a run is resumed."""
    shaping: ClassVar[tuple[str, ...]] = ("hidden", "extras", "memory", "encoder", "frames", "core", "width", "critic")
    """Settings that the network depends on: weights do not fit another value of them."""
    instead: ClassVar[str] = "start a new run from its weights with --init"
    """What to do to change any other setting."""

    def __post_init__(self):
        super().__post_init__()
        seed_from("seed", self.seed)

    @classmethod
    def may_change(cls) -> tuple[str, ...]:
        """Settings, and groups of them, that may differ when a run is resumed."""
        return (*cls.free_to_change, *cls.changeable)

    @property
    def updates(self) -> int:
        """Updates that fit into the budget; the budget is never exceeded."""
        raise NotImplementedError
