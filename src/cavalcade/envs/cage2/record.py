"""Records episodes of the original CybORG, in the user's own checkout, for verification.

`cyborg_recorder.py` plays the games in a process with CybORG's interpreter; this module has its settings, and the name
and header of the file. The format is described in docs/trace-format.md.
"""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cavalcade.core.errors import ConfigError, RunError, at_least, one_of, seed_from
from cavalcade.envs.cage2.cyborg import check_clone
from cavalcade.envs.cage2.cyborg_process import receive, send, start, stop
from cavalcade.envs.cage2.scenario import ACTIONS, DECOYS, EXPLOITS, HOSTS, PORTS, RED_ACTIONS, REVISIONS, SUBNETS
from cavalcade.envs.cage2.trace import RECORDED_REDS, STATE_FIELDS, STEP_FIELDS

BLUES = ("random", "decoy", "reactive", "sparse", "churn", "mix", "sleep")

_RECORDER = Path(__file__).with_name("cyborg_recorder.py")
_ABOUT = (
    f"Described in docs/trace-format.md of Cavalcade. Of steps: {', '.join(STEP_FIELDS)}, d_esc_n, d_imp_idx. "
    f"Of states: {', '.join(STATE_FIELDS)}."
)

# The two rules in which the revisions differ, each by a line of code that only `head` has.
_SCAN_FORGETS = ("Shared/Actions/AbstractActions/DiscoverNetworkServices.py", r"^\s*state\.sessions\b.*\.clearports\(")
_VERSION_KEPT = ("Shared/Enums.py", r"^\s*return version_string\s*$")


@dataclass(frozen=True)
class Recording:
    """Settings of a recording: E episodes of T steps, one after the other on one random stream."""

    red: str = "bline"
    blue: str = "mix"
    green: bool = False
    episodes: int = 10
    steps: int = 100
    seed: int = 0

    def __post_init__(self):
        one_of("red", self.red, RECORDED_REDS)
        one_of("blue", self.blue, BLUES)
        at_least("episodes", self.episodes, 1)
        at_least("steps", self.steps, 1)
        seed_from("seed", self.seed)

    def name(self, revision: str) -> str:
        green = "on" if self.green else "off"
        return f"{revision}_red-{self.red}_blue-{self.blue}_green-{green}_T{self.steps}_seed{self.seed}.npz"

    def meta(self, revision: str) -> dict[str, Any]:
        """The header of the file: the settings, and the numbering of hosts, ports and so on."""
        return {
            "revision": revision,
            "red": self.red,
            "blue": self.blue,
            "green": "green" if self.green else "sleep",
            "episodes": self.episodes,
            "steps": self.steps,
            "seed": self.seed,
            "hosts": HOSTS,
            "ports": PORTS,
            "exploits": EXPLOITS,
            "red_types": RED_ACTIONS,
            "decoys": tuple(f"Decoy{name}" for name in DECOYS),
            "subnets": SUBNETS,
            "actions": ACTIONS,
        }


def check_revision(checkout: Path, revision: str) -> None:
    """Raises `ConfigError` unless a checkout of CybORG is of a revision of the game."""
    if (found := revision_of(checkout)) != revision:
        raise ConfigError(f"revision is {revision}; {checkout} is {found}, give --revision {found}")


def revision_of(checkout: Path) -> str:
    """The revision of a checkout, read from its source.

    Between leaderboard-2022 (606813b) and head two rules of the game changed, each by a line that was added: a scan
    forgets the ports of earlier ones, and a restored process keeps its version. Nothing else in the code differs, so a
    checkout with both lines is head and one with neither is leaderboard-2022; a checkout with one of them (a commit in
    between) is rejected. The user's own changes are not detected here; verification of the recording finds those that
    matter.
    """
    check_clone(checkout)
    has_line = []
    for file, line in (_SCAN_FORGETS, _VERSION_KEPT):
        path = checkout / "CybORG" / "CybORG" / file
        try:
            has_line.append(re.search(line, path.read_text(encoding="utf-8"), re.MULTILINE) is not None)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; is {checkout} a complete clone?") from None
    if has_line[0] != has_line[1]:
        raise ConfigError(
            f"{checkout} has one of the two changes that lead from leaderboard-2022 to head; check out 606813b for "
            "leaderboard-2022, or the newest commit for head"
        )
    return REVISIONS[0] if all(has_line) else REVISIONS[1]


def record(
    recording: Recording,
    checkout: Path,
    folder: Path,
    *,
    python: Path | None = None,
    progress: Callable[[int], None] = lambda episodes: None,
) -> Path:
    """Plays the episodes in a checkout and writes their file into a folder; calls `progress` after each of them."""
    revision = revision_of(checkout)
    path = folder / recording.name(revision)
    if path.exists():
        raise ConfigError(f"{path} already exists; give another seed or another folder, or remove it")
    aside = path.with_name(f".{path.name}.part")
    request = {"path": str(aside.absolute()), "about": _ABOUT, "meta": recording.meta(revision)}
    try:
        with ExitStack() as at_last:
            at_last.callback(aside.unlink, missing_ok=True)
            process = start(_RECORDER, checkout, python)
            at_last.callback(stop, process)
            folder.mkdir(parents=True, exist_ok=True)
            aside.touch()  # fails now rather than after all the games
            send(process, request)
            while "written" not in (answer := receive(process)):
                progress(answer["episodes"])
            aside.replace(path)
    except OSError as error:
        raise RunError(f"{folder} cannot be written to: {error.strerror}; give another folder") from None
    return path
