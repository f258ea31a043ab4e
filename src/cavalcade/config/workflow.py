"""Settings of workflows: how an order binds a policy, and what counts as keeping it."""

from dataclasses import dataclass
from typing import Any, Literal

from cavalcade.config.base import Settings, number
from cavalcade.core.errors import ConfigError

_DEFAULTS = {"alignment": "delta", "alignment_lambda": 10.0, "alpha": 0.1, "beta": 0.2}


@dataclass(frozen=True)
class WorkflowConfig(Settings):
    """How an order binds the policy."""

    enforce: Literal["mask", "mask-true", "lagrangian", "reward", "none"] = "mask"
    """mask: where Blue's own table shows at least two types compromised, it can repair only the first of them in the
    order; mask-true: the same on the true state, which leaks it; lagrangian: a cost per violation, raised until the
    order is followed; reward: alignment rewards; none. Alignment options alone select reward."""
    open_until: Literal["restored", "removed"] = "restored"
    """When a compromised host is repaired, by Blue's table: when it was restored, or already when it was removed
    from, after which the table shows it as unknown."""
    follow_threshold: float = number(0.97, 0, 1)
    """Compliance at which an order counts as followed; with enforce lagrangian, the compliance that is aimed at."""
    compliance: Literal["table", "true", "choice", "original"] = "table"
    """What alignment rewards, --compliance-threshold and --patience go by: Blue's table, the true state, the true
    state wherever a repair is aimed, or as in the CAGE-2 workflow-search scripts. All four are reported."""
    alignment: Literal["delta", "final", "alpha-beta", "potential", "none"] | None = None
    """With enforce reward: how keeping the order is rewarded; delta if not given."""
    alignment_lambda: float | None = number(None, 0, 1e6)
    """Weight of the alignment reward (λ), not with alpha-beta; 10 if not given."""
    alpha: float | None = number(None, 0, 1e6)
    """With alignment alpha-beta: reward for each repair that keeps the order; 0.1 if not given."""
    beta: float | None = number(None, 0, 1e6)
    """With alignment alpha-beta: cost of each that does not; 0.2 if not given."""

    def __post_init__(self):
        super().__post_init__()
        given = [name for name in _DEFAULTS if getattr(self, name) is not None]
        if given and self.enforce != "reward":
            raise ConfigError(
                f"{given[0]} is {getattr(self, given[0])} with enforce {self.enforce}; alignment rewards need "
                "--enforce reward"
            )
        if self.enforce == "reward":
            self._set("alignment", self.alignment or _DEFAULTS["alignment"])
            ignored = ("alignment_lambda",) if self.alignment == "alpha-beta" else ("alpha", "beta")
            for name in ("alignment_lambda", "alpha", "beta"):
                value = getattr(self, name)
                if name not in ignored:
                    self._set(name, _DEFAULTS[name] if value is None else value)
                elif value is not None:
                    raise ConfigError(f"{name} is {value} with alignment {self.alignment}, which does not use it")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def binding(self) -> dict[str, Any]:
        """Mask, alignment and weight, as arguments of `give_order`."""
        mask = self.enforce if self.enforce in ("mask", "mask-true") else "none"
        alignment = {"lagrangian": "cost", "reward": self.alignment}.get(self.enforce, "none")
        return {"mask": mask, "alignment": alignment, "weight": self.alignment_lambda or 0.0}

    @property
    def counting(self) -> dict[str, Any]:
        """How environments count and reward compliance, as arguments of theirs."""
        return {"measure": self.compliance, "alpha": self.alpha or 0.0, "beta": self.beta or 0.0}
