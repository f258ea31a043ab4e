"""Options of a game of CAGE-2."""

from dataclasses import dataclass
from typing import Any, Literal

from cavalcade.config.base import Settings, whole
from cavalcade.envs.cage2.red_choice import check_red


@dataclass(frozen=True)
class Cage2Task(Settings):
    """Options of a CAGE-2 game."""

    red: str = "bline"
    """Red agent: bline, meander, sleep, mixed (one of the three, drawn for each episode), or module:function for a Red
    of your own (docs/own-red.md)."""
    revision: Literal["head", "leaderboard-2022"] = "head"
    """Revision of CybORG: the newest, or that of the 2022 leaderboard."""
    variant: Literal["challenge", "workflow"] = "challenge"
    """Blue's table as in the official wrapper (challenge) or in the CAGE-2 workflow-search scripts (workflow)."""
    green: bool = False
    """Whether Green scans ports."""
    horizon: int = whole(100, 1)
    """Steps per episode."""
    extras: tuple[Literal["scans", "decoys", "action", "time", "elapsed", "belief", "truth"], ...] = ()
    """Observation extras besides the 52 values of the table. elapsed counts the steps taken; time those that are left,
    which the official protocol does not tell; belief is what Blue can conclude from all that it saw (CPU only, slow);
    truth is the hidden state: scores are then bounds, not results."""

    def __post_init__(self):
        super().__post_init__()
        check_red(self.red)

    @property
    def shown(self) -> dict[str, Any]:
        """Options of the game that determine the observation."""
        options = {"revision": self.revision, "variant": self.variant, "green": self.green, "extras": self.extras}
        return options | {"dtype": "float32" if "time" in self.extras else "uint8"}


@dataclass(frozen=True)
class Original(Settings):
    """Options of the original CybORG."""

    cyborg: str = ""
    """A clone of cage-challenge/cage-challenge-2."""
    cyborg_python: str = ""
    """An interpreter with CybORG's old dependencies; this one if not given."""
    true_state_every: int = whole(0, 0)
    """With an order: steps between reads of the true state, for compliance; 0 for every step."""
