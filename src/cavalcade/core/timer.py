"""Where the time goes: seconds by phase, at the cost of one clock reading per lap."""

import time


class Timer:
    """Laps of a loop. `lap(name)` books the time since the last lap under a name; `skip` books it nowhere."""

    def __init__(self):
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def skip(self) -> None:
        """Starts the next lap here."""
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Ends a lap."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now

    def shares(self) -> dict[str, float]:
        """The share of each phase, largest first."""
        total = sum(self.seconds.values()) or 1.0
        return {name: s / total for name, s in sorted(self.seconds.items(), key=lambda item: -item[1])}
