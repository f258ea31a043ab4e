"""`cavalcade record`: episodes of the original CybORG as a file, and whether they are the same game here."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cavalcade.cli.parse import parse
from cavalcade.cli.verify import compare
from cavalcade.cli.waiting import waiting
from cavalcade.envs.cage2.record import Recording, record, revision_of
from cavalcade.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Plays in your own checkout of CybORG, writes what happened with every random outcome, and replays it here."""

    cyborg: Path
    """A clone of cage-challenge/cage-challenge-2."""
    cyborg_python: Path | None = None
    """An interpreter with CybORG's old dependencies."""
    red: Literal["bline", "meander", "sleep"] = "bline"
    """The attacker."""
    blue: Literal["random", "decoy", "reactive", "sparse", "churn", "mix", "sleep"] = "mix"
    """The defender; none plays well, each leads games into other corners."""
    green: bool = False
    """Whether Green scans hosts."""
    episodes: int = 10
    """Episodes in the file."""
    steps: int = 100
    """Steps of each episode."""
    seed: int = 0
    """Where the random stream of the file starts."""
    revision: Literal["head", "leaderboard-2022"] | None = None
    """Refuse a checkout that is not of this revision; it is read from the checkout."""
    out: Path = Path("traces")
    """The folder for the file."""


def run(args: list[str]) -> int:
    """Prints the file and what its replay gives; 1 if they differ."""
    options = parse(Options, args, "record")
    recording = Recording(options.red, options.blue, options.green, options.episodes, options.steps, options.seed)
    found = revision_of(options.cyborg)
    if options.revision not in (None, found):
        raise ConfigError(
            f"revision is {options.revision}; {options.cyborg} is of revision {found}: leave the option out, or check "
            "out the other commit (head: the newest, leaderboard-2022: 606813b)"
        )
    message = f"playing in {options.cyborg}"
    with waiting(message) as news:
        path = record(
            recording,
            options.cyborg,
            options.out,
            python=options.cyborg_python,
            progress=lambda done: news(f"{message}: {done} of {options.episodes} episodes"),
        )
    print(f"wrote {path}", flush=True)
    return compare([path])
