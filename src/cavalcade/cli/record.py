"""`cavalcade record`: episodes of a policy for MettaScope, or of the original CybORG to verify our simulator with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cavalcade.cli.options import Positional
from cavalcade.cli.parse import import_from_here, parse
from cavalcade.cli.verify import compare
from cavalcade.core.errors import ConfigError, at_least
from cavalcade.envs.cage2.record import Recording, record, revision_of
from cavalcade.runs.policies import load_policy
from cavalcade.runs.waiting import waiting
from cavalcade.targets import target_named


@dataclass(frozen=True)
class RecordOptions:
    """Records episodes of a policy on held-out maps, as .json.z files for MettaScope."""

    policy: Positional[Path]
    """Run or checkpoint."""
    out: Path
    """Output folder."""
    episodes: int = 1
    """Number of episodes, each on its own map."""
    steps: int = 0
    """Steps per episode; 0 for whole episodes."""
    sampled: bool = True
    """Sample actions instead of acting greedily."""
    seed: int = 1
    """Seed of the maps."""


@dataclass(frozen=True)
class Options:
    """Records episodes in your own checkout of CybORG, with all random outcomes, and verifies them in our simulator.

    `cavalcade record RUN --out FOLDER` records episodes of a MettaGrid policy instead.
    """

    cyborg: Path
    """A clone of cage-challenge/cage-challenge-2."""
    cyborg_python: Path | None = None
    """Python interpreter with CybORG's dependencies; by default this one."""
    red: Literal["bline", "meander", "sleep", "random"] = "bline"
    """Attacker; random reaches states that the others never do."""
    blue: Literal["random", "decoy", "reactive", "sparse", "churn", "mix", "sleep"] = "mix"
    """Defender. None plays well; each reaches different states of the game."""
    green: bool = False
    """Whether Green scans ports."""
    episodes: int = 10
    """Number of episodes."""
    steps: int = 100
    """Steps per episode."""
    seed: int = 0
    """Random seed."""
    revision: Literal["head", "leaderboard-2022"] | None = None
    """Require this revision of the checkout; by default any."""
    out: Path = Path("traces")
    """Output folder."""


def run(args: list[str]) -> int:
    """Records episodes of a policy if a run is named, else of the original CybORG."""
    if args and not args[0].startswith("-"):
        return _record_policy(args)
    return _record_cyborg(args)


def _record_policy(args: list[str]) -> int:
    import_from_here()
    args = ["--no-sampled" if arg == "--greedy" else arg for arg in args]
    options = parse(RecordOptions, args, "record")
    for name, least in (("episodes", 1), ("steps", 0), ("seed", 0)):
        at_least(name, getattr(options, name), least)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out is {options.out}; it cannot be created: {error.strerror}") from None
    policy = load_policy(options.policy)
    with waiting("playing"):
        lines = target_named(policy.config.target).record(policy, options.out, options)
    print("\n".join(lines))
    return 0


def _record_cyborg(args: list[str]) -> int:
    """Prints the file and whether our simulator plays the same; returns 1 if they differ."""
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
