"""Progress of a run: a live table on a terminal, a line every few seconds elsewhere, or nothing."""

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
    """Progress of a run."""

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
    machine: dict[str, str] = field(default_factory=dict)  # further metrics of the machine, formatted


class Display(Protocol):
    """Shows progress."""

    def due(self, last: bool) -> bool:
        """Whether it is time to show progress; last: after the last update."""
        ...

    def show(self, progress: Progress) -> None: ...

    def say(self, text: str) -> None:
        """Prints a message."""
        ...

    def close(self) -> None: ...


class QuietDisplay:
    """Shows nothing."""

    def due(self, last: bool) -> bool:
        return False

    def show(self, progress: Progress) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class PlainDisplay:
    """Prints a line every few seconds."""

    def __init__(self, every: float = 2.0):
        self._every, self._next = every, time.monotonic() + every

    def due(self, last: bool) -> bool:
        return last or time.monotonic() >= self._next

    def show(self, progress: Progress) -> None:
        self._next = time.monotonic() + self._every
        print(line(progress), flush=True)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        pass


class LiveDisplay:
    """Redraws a table in place."""

    def __init__(self, every: float = 0.25):
        self._every, self._next = every, 0.0
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._live = Live(console=Console(), auto_refresh=False)
        self._live.start()

    def due(self, last: bool) -> bool:
        return last or time.monotonic() >= self._next

    def show(self, progress: Progress) -> None:
        self._next = time.monotonic() + self._every
        self._live.update(self._table(progress), refresh=True)

    def say(self, text: str) -> None:
        """Prints a message above the table."""
        self._live.console.print(text)

    def close(self) -> None:
        """Leaves the last table on screen."""
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
    """Progress in one line."""
    returns = "  ".join(f"{name or 'return'} {value:.2f}" for name, value in p.returns.items())
    return (
        f"update {p.update:,}/{p.updates:,}  {p.episodes:,} episodes  {p.steps_per_second:,.0f} steps/s  "
        f"{_duration(p.seconds_left)} left  {returns}"
    )


def make_display(quiet: bool) -> Display:
    """The display that suits the output."""
    if quiet:
        return QuietDisplay()
    return LiveDisplay() if sys.stdout.isatty() or Console().is_jupyter else PlainDisplay()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
