"""Progress of a search: a table on a terminal, a line per finished training elsewhere."""

import math
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cavalcade.search.members import Result
from cavalcade.search.run import Search

_EVERY = 0.25


def _what(search: Search, order: int) -> str:
    return search.subtasks.text(search.orders[order]) if order >= 0 else "random orders"


def decisions(r: Result) -> str:
    """Compliance, and the number of decisions per episode behind it."""
    return "no decisions" if math.isnan(r.compliance) else f"{r.compliance:.2f} of {r.counted:.1f}"


def line(search: Search, r: Result) -> str:
    """A finished training in one line."""
    m, c = r.member, search.config
    kind = "" if m.kind == "order" else f"{m.kind}: "
    believed = "" if math.isnan(m.mean) else f"  posterior {m.mean:.1f} ± {m.deviation:.1f}"
    used = f"{r.used:,.0f}/{c.total_episodes:,} episodes"
    return (
        f"{search.seconds:6.1f} s  {m.purpose:<8}{r.score:>8.2f} ± {r.error:<5.2f} compliance {decisions(r):<14} "
        f"{kind}{_what(search, m.order)}{believed}  {used}"
    )


class SearchDisplay:
    """Prints results as they arrive; on a terminal it also shows the orders in training."""

    def __init__(self, search: Search, quiet: bool):
        self._search, self._quiet = search, quiet
        self._next = 0.0
        self._told = 0  # notes
        self._live = None
        if not quiet and sys.stdout.isatty():
            self._live = Live(console=Console(), auto_refresh=False)
            self._live.start()
        self.tick()

    def result(self, r: Result) -> None:
        self._say(line(self._search, r))

    def _say(self, text: str) -> None:
        if self._live:
            self._live.console.print(text, highlight=False)
        elif not self._quiet:
            print(text, flush=True)

    def tick(self) -> None:
        """Prints new notes, and redraws the table if it is time."""
        notes = self._search.executor.notes
        for note in notes[self._told :]:
            self._say(note)
        self._told = len(notes)
        if self._live and time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY
            self._live.update(self._table(), refresh=True)

    def close(self) -> None:
        if self._live:
            self._live.stop()

    def _table(self) -> Table:
        s = self._search
        table = Table(box=None, pad_edge=False)
        for head in ("in training", "", "task", "bonus", "compliance"):
            table.add_column(head)
        for slot in s.executor.slots:
            m, latest = slot.member, slot.latest
            what = _what(s, m.order)
            episode_stats = (f"{latest.get(name, math.nan):.2f}" for name in ("task", "bonus", "compliance"))
            table.add_row(
                f"{what} {'' if m.kind == 'order' else m.kind}", f"{slot.updates}/{m.updates}", *episode_stats
            )
        rate = s.steps / max(s.seconds, 1e-9)
        left = s.config.total_episodes - s.used
        table.add_row(f"{rate:,.0f} steps/s, {s.seconds:.0f} s", "", f"{left:,.0f} episodes left", "", "")
        return table
