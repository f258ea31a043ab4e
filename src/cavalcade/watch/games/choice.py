"""Which game is to be shown, as the address of the page or a request names it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cavalcade.core.errors import ConfigError, at_least, one_of, seed_from
from cavalcade.envs.cage2.protocol import CELLS
from cavalcade.envs.cage2.scenario import ACTIONS, REDS, REVISIONS
from cavalcade.envs.cage2.scripted import BLUES

RANKS = ("worst", "median", "best")
_WHOLE = ("member", "horizon", "seed", "episodes", "game")
_FLAGS = ("sampled", "green")
MOST_STEPS = 1000
MOST_EPISODES = 10_000


@dataclass(frozen=True)
class Choice:
    """A game of CAGE-2; None stands for what the run was trained on, or for what the challenge has."""

    run: str = ""  # run, checkpoint or search, relative to the watched folder …
    blue: str = ""  # … or a baseline
    order: str | None = None  # of a search
    member: int | None = None  # of a population; of a search, number of a training
    sampled: bool = False
    red: str | None = None
    revision: str | None = None
    green: bool | None = None
    horizon: int | None = None
    seed: int = 0
    cell: str = ""  # of the scoring protocol, as bline-30 …
    rank: str = "median"  # … and the game in it: worst, median, best, or its number from the worst, from 0
    episodes: int = 1000  # … of so many
    game: int | None = None  # its index among the games of the seed; by default by rank, or 0
    edits: tuple[tuple[int, int], ...] = ()  # actions that replace those of Blue: step from 1, action

    def __post_init__(self):
        if bool(self.run) == bool(self.blue):
            given = f"run is {self.run!r} and blue is {self.blue!r}"
            raise ConfigError(f"{given}; name a run or one of {', '.join(BLUES)}, one of both")
        if self.blue:
            one_of("blue", self.blue, BLUES)
        if self.red is not None:
            one_of("red", self.red, REDS)
        if self.revision is not None:
            one_of("revision", self.revision, REVISIONS)
        if self.cell:
            one_of("cell", self.cell, CELLS)
        if not self.rank.isdecimal():
            one_of("rank", self.rank, RANKS)
        seed_from("seed", self.seed)
        _within("horizon", self.horizon, 1, MOST_STEPS)
        _within("member", self.member, 0, 1 << 31)
        _within("game", self.game, 0, 1 << 62)
        _within("episodes", self.episodes, 2, MOST_EPISODES)
        for step, _ in self.edits:
            at_least("the step of an edit", step, 1)

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "Choice":
        """From the parameters of a request; those of other names are for others."""
        known = {f.name for f in dataclasses.fields(cls)}
        found: dict[str, Any] = {}
        for name, text in query.items():
            if name == "edits":
                found[name] = tuple(_edit(part) for part in text.split(",") if part)
            elif name in known and text != "":
                found[name] = value_of(name, text)
        return cls(**found)


def value_of(name: str, text: str) -> Any:
    """A parameter as its type wants it."""
    if name in _WHOLE:
        return whole(name, text)
    if name in _FLAGS:
        one_of(name, text, ("true", "false"))
        return text == "true"
    return text


def whole(name: str, text: str) -> int:
    """A whole number from text."""
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ConfigError(f"{name} is {text[:40]!r}; it must be a whole number of at least 0")
    return int(text)


def action_of(text: str) -> int:
    """The number of an action of Blue, from its number or its name."""
    if text.isascii() and text.isdecimal() and len(text) < 4 and int(text) < len(ACTIONS):
        return int(text)
    if text not in ACTIONS:
        raise ConfigError(f"action is {text[:40]!r}; it must be a name as 'Restore User1', or 0 to {len(ACTIONS) - 1}")
    return ACTIONS.index(text)


def _edit(text: str) -> tuple[int, int]:
    step, _, action = text.partition(":")
    return whole("the step of an edit", step), action_of(action)


def _within(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ConfigError(f"{name} is {value}; it must be from {least} to {most:,}")
