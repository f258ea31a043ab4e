"""Options of a MettaGrid task."""

from dataclasses import dataclass
from typing import Any, Literal

from cavalcade.config.base import Settings, whole
from cavalcade.config.io import parse_options


@dataclass(frozen=True)
class MettagridTask(Settings):
    """Options of a MettaGrid arena."""

    task: str = "forage"
    """forage, forage-easy, forage-sparse, navigation; or a MettaGridConfig: a YAML or JSON file, or module:function."""
    env_options: tuple[str, ...] = ()
    """Options of the task, each as name=value, e.g. agents=4."""
    max_tokens: int = whole(128, 1)
    """Tokens kept of an observation, the nearest first; the share of observations that had more is a metric."""
    stats: tuple[str, ...] = ()
    """MettaGrid statistics kept of each agent's episode, e.g. heart.gained."""

    simulator: Literal["auto", "compiled", "package"] = "auto"
    """Who plays: compiled, our own simulator in this process, equal to the package's; package, the mettagrid package in
    workers; auto, compiled if it supports the task and nothing is said about workers."""

    def __post_init__(self):
        super().__post_init__()
        _ = self.options

    @property
    def options(self) -> dict[str, Any]:
        """`env_options` as a dictionary."""
        return parse_options(self.env_options)
