"""Changes to the scenario of the challenge: costs, detection, a head start for Blue. By default there is none."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from cavalcade.config.base import Settings, number, whole
from cavalcade.core.errors import ConfigError
from cavalcade.core.rng import threshold
from cavalcade.envs.cage2.scenario import DETECTION_CHANCE

_COST = "cost_"
CHANGED = " (changed scenario)"  # appended to the kind of episodes that are not those of the challenge


@dataclass(frozen=True)
class Scenario(Settings):
    """Changes to the scenario; with any of them, a game is not that of the challenge, and its scores do not compare."""

    detection: float = number(DETECTION_CHANCE, 0, 1)
    """Probability that a reverse shell is noticed. Any change of this or the following is not the challenge."""
    red_delay: int = whole(0, 0)
    """Steps of each episode before Red may act."""
    cost_user: float = number(0.1, 0, 100)
    """Cost per step of each of User1 to User4 on which Red is privileged, in steps of 0.1, like all costs."""
    cost_enterprise: float = number(1.0, 0, 100)
    """Likewise for Enterprise0 to Enterprise2."""
    cost_op_host: float = number(0.1, 0, 100)
    """Likewise for Op_Host0 to Op_Host2."""
    cost_op_server: float = number(1.0, 0, 100)
    """Likewise for Op_Server0."""
    cost_impact: float = number(10.0, 0, 1000)
    """Cost per step while the operational service is down."""
    cost_restore: float = number(1.0, 0, 1000)
    """Cost of a Restore."""

    def __post_init__(self):
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.startswith(_COST) and abs(10 * value - round(10 * value)) > 1e-9:
                raise ConfigError(f"{field.name} is {value}; it must be a multiple of 0.1")

    @property
    def differences(self) -> tuple[str, ...]:
        """What is not as in the challenge, in words."""
        fields = ((field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self))
        return tuple(f"{name} {value:g} instead of {usual:g}" for name, value, usual in fields if value != usual)

    @property
    def params(self) -> dict[str, int]:
        """The fields of `Params`: costs in tenths."""
        costs: dict[str, Any] = {
            field.name: round(10 * getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name.startswith(_COST)
        }
        weights = {"cost_user", "cost_enterprise", "cost_op_host", "cost_op_server"}
        weighted = int(any(costs[name] != 10 * getattr(Scenario, name) for name in weights))
        return costs | {"weighted": weighted, "detection": int(threshold(self.detection)), "red_delay": self.red_delay}


def not_the_challenge(scenario: Scenario) -> list[str]:
    """A line that says so, if anything is changed."""
    return [f"not the challenge: {', '.join(scenario.differences)}"] if scenario.differences else []
