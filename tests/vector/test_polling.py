"""Polling before sleeping, by a clock that the test moves."""

import pytest

from cavalcade.vector import worker
from cavalcade.vector.worker import Polling

SPIN = 200e-6


class Clock:
    """Time passes only while the core is yielded."""

    def __init__(self):
        self.now, self.yielded = 100.0, 1e-6

    def perf_counter(self):
        return self.now

    def yield_core(self):
        self.now += self.yielded


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(worker, "time", found)
    monkeypatch.setattr(worker, "yield_core", found.yield_core)
    return found


def polls(polling, clock, most=1000):
    """Polls in a wait that begins now."""
    since, count = clock.now, 0
    while count < most and polling.goes_on(since):
        count += 1
    return count


def test_it_polls_for_its_time_on_a_quiet_machine(clock):
    polling = Polling(SPIN)
    for _ in range(3):
        assert polls(polling, clock) == pytest.approx(200, abs=1)
        polling.waited(SPIN, clock.now)


def test_it_sleeps_at_once_after_a_long_wait(clock):
    polling = Polling(SPIN)
    polling.waited(3 * SPIN, clock.now)
    assert polls(polling, clock) == 0
    polling.waited(SPIN, clock.now)
    assert polls(polling, clock) > 0


def test_beside_a_busy_process_it_polls_ever_more_rarely(clock):
    polling, pauses = Polling(SPIN), []
    for _ in range(10):
        clock.yielded = 3e-3  # a neighbour's time slice
        assert polls(polling, clock) == 1
        start, clock.yielded = clock.now, 1e-6
        polling.waited(SPIN, clock.now)
        while not polls(polling, clock, 1):
            clock.now += 1e-3
            polling.waited(SPIN, clock.now)
        pauses.append(clock.now - start)
    assert pauses[0] == pytest.approx(0.05, abs=0.01)
    assert pauses[3] == pytest.approx(0.4, abs=0.01)
    assert pauses[-1] == pytest.approx(3, abs=0.01)
    clock.now += 10  # the neighbour was away for long
    clock.yielded = 3e-3
    polls(polling, clock)
    polling.waited(SPIN, clock.now)
    clock.now += 0.06
    polling.waited(SPIN, clock.now)
    assert polls(polling, clock) > 0
