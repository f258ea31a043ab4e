"""What a user sees of a run in progress: a live table on a terminal, a line now and then elsewhere, or nothing."""

import sys
import time
from dataclasses import dataclass, field
from typing import Protocol

import psutil
from rich.console import Console
from rich.live import Live
from rich.table import Table


@dataclass
class Progress:
    """Where a run stands."""

    update: int = 0
    updates: int = 0
    steps: int = 0  # environment steps of all policies
    episodes: int = 0
    steps_per_second: float = 0.0
    episodes_per_second: float = 0.0
    seconds_left: float = 0.0
    returns: dict[str, float] = field(default_factory=dict)  # mean of recent episodes, by kind
    losses: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)  # share of time
    machine: dict[str, str] = field(default_factory=dict)  # what else is known of the machine, in words


class Display(Protocol):
    """Shows progress."""

    def due(self, last: bool) -> bool:
        """Whether it is time to show something; last: the run is at its end."""
        ...

    def show(self, progress: Progress) -> None:
        """Shows the state of the run."""
        ...

    def say(self, text: str) -> None:
        """Something that happened once."""
        ...

    def close(self) -> None:
        """Ends the show."""
        ...


class QuietDisplay:
    """Shows nothing."""

    def due(self, last: bool) -> bool:
        """Never."""
        return False

    def show(self, progress: Progress) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainDisplay:
    """A line every few seconds."""

    def __init__(self, every: float = 2.0):
        self._every, self._next = every, time.monotonic() + every

    def due(self, last: bool) -> bool:
        """If the last line is long enough ago, and at the end."""
        return last or time.monotonic() >= self._next

    def show(self, progress: Progress) -> None:
        """A line."""
        self._next = time.monotonic() + self._every
        print(line(progress), flush=True)

    def say(self, text: str) -> None:
        """A line."""
        print(text, flush=True)

    def close(self) -> None:
        """Nothing is left to do."""


class LiveDisplay:
    """A table that is redrawn in place."""

    def __init__(self, every: float = 0.25):
        self._every, self._next = every, 0.0
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._live = Live(console=Console(), auto_refresh=False)
        self._live.start()

    def due(self, last: bool) -> bool:
        """If the last picture is long enough ago, and at the end."""
        return last or time.monotonic() >= self._next

    def show(self, progress: Progress) -> None:
        """Redraws."""
        self._next = time.monotonic() + self._every
        self._live.update(self._table(progress), refresh=True)

    def say(self, text: str) -> None:
        """A line above the table."""
        self._live.console.print(text)

    def close(self) -> None:
        """Leaves the last picture standing."""
        self._live.stop()

    def _table(self, p: Progress) -> Table:
        table = Table(box=None, show_header=False, pad_edge=False)
        done = p.update / max(p.updates, 1)
        bar = "━" * int(30 * done) + "╌" * (30 - int(30 * done))
        table.add_row("progress", f"[green]{bar}[/] {done:4.0%}  update {p.update:,} of {p.updates:,}")
        table.add_row("speed", f"{p.steps_per_second:,.0f} steps/s  {p.episodes_per_second:,.0f} episodes/s")
        table.add_row("done", f"{p.episodes:,} episodes, {p.steps:,} steps; {_duration(p.seconds_left)} left")
        table.add_row(
            "return", "  ".join(f"{name or 'mean'} [bold]{value:.2f}[/]" for name, value in p.returns.items())
        )
        table.add_row("learning", "  ".join(f"{name} {value:.3g}" for name, value in p.losses.items()))
        table.add_row("time in", "  ".join(f"{name} {share:.0%}" for name, share in p.phases.items() if share >= 0.005))
        memory = self._process.memory_info().rss / 2**20
        more = "".join(f"  {name} {value}" for name, value in p.machine.items())
        table.add_row("machine", f"CPU {self._process.cpu_percent():.0f} %  memory {memory:,.0f} MB{more}")
        return table


def line(p: Progress) -> str:
    """The state of a run in a line."""
    returns = "  ".join(f"{name or 'return'} {value:.2f}" for name, value in p.returns.items())
    return (
        f"update {p.update:,}/{p.updates:,}  {p.episodes:,} episodes  {p.steps_per_second:,.0f} steps/s  "
        f"{_duration(p.seconds_left)} left  {returns}"
    )


def make_display(quiet: bool) -> Display:
    """What fits the place where output goes."""
    if quiet:
        return QuietDisplay()
    return LiveDisplay() if sys.stdout.isatty() else PlainDisplay()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
