"""The original CybORG, in the user's own checkout, as a batch of games hosted in workers.

What Blue knows but CybORG does not report (its decoys, its last action, the time, scans it has seen) is tracked by our
own games against a sleeping Red, which get the same actions: decoys depend on Blue alone.
"""

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cavalcade.config.hosting import WorkerConfig
from cavalcade.core.contract import BROKEN, Buffers, SavedState
from cavalcade.core.errors import ConfigError, StateError, one_of
from cavalcade.core.rng import STREAMS
from cavalcade.envs.cage2 import cpu
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import NUM_ACTIONS, NUM_BITS, NUM_HOSTS, REDS
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import Shapes, Source, discrete_actions

_ROWS = Path(__file__).with_name("cyborg_rows.py")
_TABLE_BITS = 1 << np.arange(NUM_BITS)


def check_clone(checkout: Path) -> None:
    """Raises `ConfigError` for a folder that is not a clone of CAGE Challenge 2."""
    if not (checkout / "CybORG" / "CybORG").is_dir():
        raise ConfigError(f"{checkout} is not a clone of cage-challenge/cage-challenge-2: it has no CybORG/CybORG")


def commit_of(checkout: Path) -> str:
    """The commit of a clone, abbreviated, with a + if its files were changed; empty if git does not know."""
    if not (checkout / ".git").exists():
        return ""  # git would answer for a repository around it
    found = []
    for command in (("rev-parse", "--short=7", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        try:
            done = subprocess.run(["git", "-C", str(checkout), *command], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        found.append(done.stdout.strip())
    return found[0] + "+" * bool(found[1])


_IMPORTS = """
import sys
import numpy
sys.path.insert(0, sys.argv[1])
from CybORG import CybORG
from CybORG.Agents import B_lineAgent, GreenAgent, RedMeanderAgent, SleepAgent
from CybORG.Agents.Wrappers import ChallengeWrapper
"""


@cache
def check_interpreter(checkout: Path, python: Path | None) -> None:
    """Raises `ConfigError` if an interpreter cannot import CybORG, before workers would fail one after the other."""
    interpreter = str(python or sys.executable)
    command = [interpreter, "-W", "ignore", "-c", _IMPORTS, str(checkout.absolute() / "CybORG")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"{python} cannot be started: {error.strerror}") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("ModuleNotFoundError: ")
        raise ConfigError(
            f"{reason} in {interpreter}; give an interpreter that has CybORG's requirements with --cyborg-python"
        )


def cyborg_source(
    checkout: Path, python: Path | None, *, red: str, green: bool, horizon: int, true_state_every: int = 0
) -> Source:
    check_clone(checkout)
    one_of("red", red, REDS)
    check_interpreter(checkout, python)
    shapes = Shapes(
        NUM_BITS, "uint8", discrete_actions(NUM_ACTIONS), ("red",), NUM_HOSTS if true_state_every else 0, "uint8"
    )
    options = {"checkout": str(checkout.absolute()), "red": red, "green": green, "horizon": horizon}
    options |= {"true_state_every": true_state_every}
    return Source("cyborg", shapes, str(_ROWS), options, python.absolute() if python else Path(sys.executable))


class CyborgGames(Hosted):
    """CybORG's games as they are, for workers that act by themselves: Blue's 52 values, all actions allowed."""

    episode_kind_names = (*REDS[:3], BROKEN)

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.episode_stat_names = ()  # the Red of an episode is its kind

    def kinds_of(self, lost: NDArray[np.bool_], stats: NDArray) -> NDArray[np.int64]:
        """The Red of each episode; the last kind where it was lost with its worker."""
        return np.where(lost, len(REDS[:3]), np.nan_to_num(stats[:, 0])).astype(np.int64)


class Cyborg(Cage2):
    """Games played in CybORG: its tables, rewards and true state; everything else as in `Cage2`.

    Args:
        checkout: a clone of cage-challenge/cage-challenge-2.
        num_envs: games in the batch.
        python: an interpreter with CybORG's old dependencies; this one if not given.
        host: backend and workers.
        red: the Red agent.
        green: whether Green scans ports.
        horizon: steps per episode.
        stream: train, evaluate or heldout: streams have no games in common.
        seed: of the games; several take equal shares.
        first_index: index of the first environment, for a batch that is part of a larger one.
        true_state_every: steps between reads of the true state; 0 for never.
        **options: those of `Cage2` that concern the observation.
    """

    resumable, out_of_process = False, True
    episode_kind_names = (*REDS[:3], BROKEN)

    def __init__(
        self,
        checkout: Path,
        num_envs: int,
        python: Path | None = None,
        host: WorkerConfig | None = None,
        *,
        red: str = "bline",
        green: bool = False,
        horizon: int = 100,
        stream: str = "train",
        seed: int | Sequence[int] = 0,
        first_index: int = 0,
        true_state_every: int = 0,
        **options: Any,
    ):
        if options.get("variant", "challenge") != "challenge":
            raise ConfigError("variant is workflow; CybORG itself has challenge only")
        if "belief" in options.get("extras", ()):
            raise ConfigError("extras has belief, which is computed in our simulator only; leave it out")
        super().__init__(num_envs, red="sleep", horizon=horizon, autoreset=False, threads=1, **options)
        source = cyborg_source(
            checkout, python, red=red, green=green, horizon=horizon, true_state_every=true_state_every
        )
        self._first_seed = one_of("stream", stream, STREAMS) << 32
        seeds = (np.atleast_1d(seed) + self._first_seed).tolist()
        self.hosted = Hosted(source, num_envs, host, seed=seeds, first_index=first_index)
        self.true_state = self.hosted.true_state
        self._kinds = np.zeros(num_envs, np.int8)
        self.episode_kinds = self._kinds
        self._before = self._outputs.words.copy(), self._outputs.values.copy()  # the latest observations

    @property
    def groups(self) -> tuple[slice, ...]:
        return self.hosted.groups

    def reset(self, *, seed: int | Sequence[int] | None = None, indices: ArrayLike | None = None) -> Buffers:
        super().reset(indices=indices)
        shifted = None if seed is None else (np.atleast_1d(seed) + self._first_seed).tolist()
        self.hosted.reset(seed=shifted, indices=indices)
        self._show_tables(self._rows(indices), self.hosted.buffers.observation)
        return self.buffers

    def send(self, actions: ArrayLike) -> None:
        array = np.asarray(actions)
        super().send(array)
        for group, rows in enumerate(self.groups):
            self._send_checked(group, array[rows])

    def recv(self) -> Buffers:
        if not self._sent:
            raise StateError("recv without actions; call send(actions) first")
        for _ in self.groups:
            self.wait_any()
        self._sent = False
        return self.buffers

    def send_group(self, group: int, actions: ArrayLike) -> None:
        self._send_checked(group, np.asarray(actions))

    def _send_checked(self, group: int, actions: NDArray) -> None:
        rows, out = self.groups[group], self._outputs
        self.hosted.send_group(group, actions)
        self._before[0][rows], self._before[1][rows] = out.words[rows], out.values[rows]
        self._actions[rows] = actions
        cpu.step_range(self.state, self.params, self._actions, self._outputs, rows.start, rows.stop)

    def wait_any(self) -> int:
        """Waits until any group has results, and combines CybORG's tables with what Blue knows; returns its number."""
        group = self.hosted.wait_any()
        span, theirs, out = self.groups[group], self.hosted.buffers, self._outputs
        rows = np.arange(span.start, span.stop)
        for name in ("reward", "terminated", "truncated"):
            getattr(self.buffers, name)[span] = getattr(theirs, name)[span]
        ended = rows[theirs.terminated[span] | theirs.truncated[span]]
        self._show_tables(np.setdiff1d(rows, ended), theirs.observation)
        if len(ended):
            self._show_tables(ended, theirs.final_observation)
            out.final_words[ended], out.final_values[ended] = out.words[ended], out.values[ended]
            self._kinds[ended] = np.nan_to_num(self.hosted.shared.episode_stats[ended, 0]).astype(np.int8)
            if self.hosted.episode_kinds is not None:
                broken = ended[self.hosted.episode_kinds[ended] > 0]
                out.final_words[broken], out.final_values[broken] = (part[broken] for part in self._before)
                self._kinds[broken] = len(self.episode_kind_names) - 1
            cpu.begin(self.state, ended)
            self._show_tables(ended, theirs.observation)
        return group

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        """Seed, index and number of games begun of each environment; the games themselves stay in CybORG."""
        return self.hosted.save_state(indices)

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        """Begins the next game after those counted in the saved state."""
        self.hosted.load_state(saved, indices)
        super().reset(indices=indices)
        self._show_tables(self._rows(indices), self.hosted.buffers.observation)

    def clone(self, indices: ArrayLike | None = None) -> Self:
        raise StateError("games of CybORG cannot be cloned; make a new batch")

    def close(self) -> None:
        self.hosted.close()

    def _show_tables(self, rows: NDArray[np.int64], tables: NDArray) -> None:
        if len(rows):
            cpu.show_tables(self.state, self.params, self._outputs, rows, tables[rows].astype(np.int64) @ _TABLE_BITS)
