"""The target interface: settings, environments, engine, evaluation, play and callbacks.

A target combines an environment with an engine. To add one, add a module to this package and document it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from cavalcade.config.base import RunConfig
from cavalcade.core.contract import Environment
from cavalcade.core.errors import ConfigError
from cavalcade.policy.module import MakeModule
from cavalcade.ppo.distributed import ALONE, Ranks
from cavalcade.ppo.engine import Engine
from cavalcade.ppo.snapshot import Snapshot
from cavalcade.ppo.trainer import Adapt, Callback
from cavalcade.targets.members import Member, choose_member
from cavalcade.vector.actions import ActionLayout

C = TypeVar("C", bound=RunConfig)

Progress = Callable[[str], None]  # receives a line of text about work that takes a while
LoadPolicy = Callable[..., Any]  # loads a policy, given path, order and member, as `cavalcade.load_policy`


def no_progress(_: str) -> None:
    """Says nothing."""


class Saved(NamedTuple):
    """Contents of a checkpoint, as passed to `Target.policy`."""

    path: Path
    snapshot: Snapshot
    network: dict[str, Any]  # the architecture, as the engine described it
    config: dict[str, Any]  # configuration of the run as plain data
    module: MakeModule | None = None  # factory of a user-defined network


@dataclass(frozen=True)
class Setup:
    """Arguments of `Target.prepare` besides the configuration."""

    threads: int = 0  # CPU threads; 0 measures which number is fastest
    ranks: Ranks = ALONE
    first_index: int = 0  # index of this rank's first environment
    engine_before: str = ""  # engine of the run that is resumed
    load: Callable[[str], Any] | None = None  # loads a policy from the path of its run
    network: MakeModule | None = None  # factory of a user-defined network, for the torch engine
    network_before: Mapping[str, Any] = field(default_factory=dict)  # architecture of the run that is resumed


@dataclass
class Prepared:
    """An engine with its environments, ready to train."""

    engine: Engine
    threads: int
    notes: list[str] = field(default_factory=list)  # printed before training


class Score(NamedTuple):
    """Mean over episodes."""

    name: str
    mean: float
    interval: float  # half-width of its 95 % interval
    episodes: int


@dataclass(frozen=True)
class Scores:
    """Result of an evaluation; `str` gives the text to print."""

    scores: tuple[Score, ...]
    text: str
    plain: dict[str, Any]  # the same as plain data, for JSON

    def __str__(self) -> str:
        return self.text

    def __getitem__(self, name: str) -> Score:
        return {score.name: score for score in self.scores}[name]

    @property
    def mean(self) -> float:
        """Mean of the first score."""
        return self.scores[0].mean


class Target(ABC, Generic[C]):
    """Environments, engine and evaluation under one name."""

    name: ClassVar[str]  # on the command line
    prefix: ClassVar[bool] = False  # whether `name` is a prefix of many names, as gym:
    hardware: ClassVar[bool] = False  # whether hardware presets are shipped for it
    tuned_by_speed: ClassVar[bool] = True  # whether `cavalcade tune` compares steps per second; else rewards
    Config: type[C]
    EvaluateOptions: type
    PlayOptions: type | None = None

    def accepts(self, name: str) -> bool:
        """Whether a name refers to this target."""
        return name.startswith(self.name) if self.prefix else name == self.name

    @abstractmethod
    def run_name(self, config: C) -> str:
        """First part of the name of a run directory."""

    @abstractmethod
    def make_env(self, config: C, threads: int = 0, first_index: int = 0) -> Environment:
        """Makes the environments of all policies; first_index: index of each policy's first environment."""

    @abstractmethod
    def prepare(self, config: C, setup: Setup) -> Prepared:
        """Makes environments and engine, and compiles them."""

    def share(self, config: C, ranks: Ranks) -> C:
        """Configuration of one rank's share; raises `ConfigError` for settings that ranks do not support."""
        ppo: Any = config.ppo  # pyright: ignore[reportAttributeAccessIssue] — every target has it
        here = ranks.share(ppo.num_envs, "num_envs")
        return replace(config, ppo=replace(ppo, num_envs=here.stop - here.start))  # pyright: ignore

    def adapt(self, config: C, engine: Engine) -> Adapt | None:
        """Returns what adapts the environments to the episodes of each rollout, or None."""
        return None

    def callbacks(self, config: C, engine: Engine, folder: Path) -> Sequence[Callback]:
        """Callbacks after each update."""
        every: int = getattr(config, "monitor_every", 0)
        if not every:
            return ()
        from cavalcade.targets.monitor import Monitor

        return (Monitor(engine, every),)

    def remarks(self, config: C) -> Sequence[str]:
        """What readers of scores have to know: e.g. that the rules of the game were changed."""
        return ()

    def action_layout(self, config: C) -> ActionLayout | None:
        """How the environment scales and clips the actions of a policy; None if it takes them as they are."""
        return None

    @abstractmethod
    def policy(self, saved: Saved) -> Any:
        """Loads the policies of a checkpoint."""

    def best_member(self, policy: Any) -> int:
        """Index of the best policy of a population on validation episodes, which neither training nor scores use."""
        raise ConfigError(f"{policy.path} has {policy.policies} policies; name one with --member, numbered from 0")

    def member(self, policy: Any, member: int | None = None) -> Member:
        """The policy of a population to use: the one asked for, else the best."""
        return choose_member(policy, member, self.best_member)

    @abstractmethod
    def heldout(self, policy: Any) -> Scores:
        """Scores a trained policy on held-out episodes of its own task."""

    @abstractmethod
    def evaluate(self, policy: Any, options: Any, progress: Progress = no_progress) -> Scores:
        """Evaluates a policy; options: `EvaluateOptions` of this target, progress: receives news while it lasts."""

    def play(self, options: Any, load: LoadPolicy) -> None:
        """Shows a game in the terminal; options: `PlayOptions` of this target, load: see `LoadPolicy`."""
        raise ConfigError(f"games of {self.name} cannot be watched in the terminal")

    def record(self, policy: Any, folder: Path, options: Any) -> Sequence[str]:
        """Records episodes of a policy; returns a line of text about each file."""
        raise ConfigError(f"episodes of {self.name} cannot be recorded; only those of mettagrid, for MettaScope")
