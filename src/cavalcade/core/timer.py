"""Wall-clock seconds by phase, at the cost of one clock reading per lap."""

import time


class Timer:
    """Times the phases of a loop. `lap(name)` adds the time since the last lap to a phase; `skip` discards it."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def skip(self) -> None:
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    def shares(self) -> dict[str, float]:
        """The share of each phase, largest first."""
        total = sum(self.seconds.values()) or 1.0
        return {name: s / total for name, s in sorted(self.seconds.items(), key=lambda item: -item[1])}
