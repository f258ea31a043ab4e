"""Which fragments a learner takes, and on how many threads it learns from them."""

from types import SimpleNamespace

import numba
import numpy as np
import pytest

from cavalcade.core.threads import use_threads
from cavalcade.ppo.collectors import collector as module
from cavalcade.ppo.collectors.collector import FragmentCollector
from cavalcade.vector.fragments import Fragment


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


class Source:
    """Two workers; the clock advances by `late` seconds before their fragments are there."""

    groups = (slice(0, 1), slice(1, 2))

    def __init__(self, clock):
        self.clock, self.late, self.ready = clock, 0.0, []

    def publish(self, version, values):
        self.version = version

    def playing(self):
        return []

    def finished(self):
        return self.ready

    def allow(self, fragments):
        pass

    def wait(self, known):
        assert known == len(self.ready)
        self.clock.now += self.late
        self.ready = [Fragment(w, 0, self.version, {}, np.zeros(1)) for w in (1, 0)]


@pytest.fixture
def learner(monkeypatch):
    """A collector on a stopped clock."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    source = Source(clock)
    monkeypatch.setattr(module, "_source", lambda *_, **__: source)
    return SimpleNamespace(clock=clock, source=source, collector=FragmentCollector(None, None, 2))


@pytest.mark.parametrize(("waited", "learnt", "one"), [(1.0, 1.0, True), (0.0, 1.0, False), (0.05, 1.0, False)])
def test_a_learner_that_waits_for_workers_leaves_them_the_cores(learner, waited, learnt, one):
    before = numba.get_num_threads()
    use_threads(2)
    threads = numba.get_num_threads()
    try:
        learner.clock.now += learnt
        learner.source.late = waited
        taken = learner.collector.wait(3, np.zeros(1, np.float32))
        assert [fragment.worker for fragment in taken] == [0, 1]
        with learner.collector.threads():
            assert numba.get_num_threads() == (1 if one else threads)
        assert numba.get_num_threads() == threads
    finally:
        use_threads(before)
