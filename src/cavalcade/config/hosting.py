"""Settings of hosted environments: single environments in this process, in workers, or in Ray actors."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cavalcade.config.base import Settings, number, whole
from cavalcade.core.errors import ConfigError


@dataclass(frozen=True)
class WorkerConfig(Settings):
    """How single environments are hosted on this machine."""

    backend: Literal["serial", "pipe", "shared", "async"] = "async"
    """serial: in this process; pipe: workers with pickled messages; shared: workers that write into shared memory;
    async: the same in groups, so that some step while the policy acts for others."""
    workers: int = whole(0, 0)
    """Worker processes; 0 for one per core."""
    async_factor: int = whole(2, 1)
    """With backend async: groups of environments."""
    spin: float = number(200.0, 0, 1e6)
    """Microseconds of busy waiting before sleeping, as long as results come that soon."""
    worker_timeout: float = 60.0
    """Seconds after which a worker is considered hung and is replaced."""
    max_restarts: int = whole(10, 0)
    """Worker restarts after which the run stops, with a checkpoint."""

    changeable: ClassVar[tuple[str, ...]] = ("workers", "spin", "worker_timeout", "max_restarts")

    def __post_init__(self):
        super().__post_init__()
        if not self.worker_timeout > 0:
            raise ConfigError(f"worker_timeout is {self.worker_timeout}; it must be above 0")

    def refuse_idle(self, given: Collection[str]) -> None:
        """Raises `ConfigError` if a setting was given that has no effect with the backend.

        Not in the configuration itself: presets, and runs of before, have settings of other backends.
        """
        if self.backend == "serial":
            idle = ("workers", "async_factor", "spin", "worker_timeout", "max_restarts")
            self.refuse_without("--backend async, shared or pipe", *(name for name in idle if name in given))
        elif self.backend != "async" and "async_factor" in given:
            self.refuse_without("--backend async", "async_factor")

    @property
    def lag(self) -> int:
        """Maximum age of experience, in updates: 0, environments are stepped with the newest policy."""
        return 0


@dataclass(frozen=True)
class CollectorConfig(WorkerConfig):
    """How single environments are hosted for training, step by step or played by their workers."""

    staleness: int | None = None
    """Maximum age of experience, in updates. Above 0, workers hold the policy and play on while the learner learns; 0
    waits for each other. Default: 2 with backend ray, else 0."""
    vtrace: bool = True
    """With staleness: correct for it with V-trace."""

    changeable: ClassVar[tuple[str, ...]] = (*WorkerConfig.changeable, "staleness", "vtrace")

    def __post_init__(self):
        super().__post_init__()
        if self.staleness is not None and self.staleness < 0:
            raise ConfigError(f"staleness is {self.staleness}; it must be at least 0")
        if self.lag and self.backend in ("serial", "pipe"):
            raise ConfigError(f"staleness is {self.lag} with backend {self.backend}; use --backend async or shared")
        if not self.vtrace and not self.lag:
            raise ConfigError(f"no-vtrace is given with staleness {self.lag}; give --staleness too")

    @property
    def lag(self) -> int:
        """Maximum age of experience, in updates."""
        if self.staleness is None:
            return 2 if self.backend == "ray" else 0
        return self.staleness


@dataclass(frozen=True)
class HostConfig(CollectorConfig):
    """How single environments are hosted, on this machine or on a Ray cluster."""

    backend: Literal["serial", "pipe", "shared", "async", "ray"] = "async"
    """serial: in this process; pipe: workers with pickled messages; shared: workers that write into shared memory;
    async: the same in groups, so that some step while the policy acts for others; ray: actors, on one machine or many,
    which with gym: play whole rollouts by themselves."""
    workers: int = whole(0, 0)
    """Worker processes; 0 for one per core. With backend ray: actors; 0 for one per CPU of the cluster but one."""
    ray_address: str = ""
    """With backend ray: address of a cluster, e.g. auto or 10.0.0.1:6379. Without one, Ray runs on this machine and
    listens on loopback only."""

    changeable: ClassVar[tuple[str, ...]] = (*CollectorConfig.changeable, "ray_address")

    def __post_init__(self):
        super().__post_init__()
        if self.ray_address and self.backend != "ray":
            raise ConfigError(f"ray_address is {self.ray_address} with backend {self.backend}; take --backend ray")


def refuse_idle(config: Any, given: dict[str, Any]) -> None:
    """Raises `ConfigError` if one of the settings that were given, as plain data, has no effect with the backend."""
    if refuse := getattr(getattr(config, "host", None), "refuse_idle", None):
        refuse(given.get("host", {}))
