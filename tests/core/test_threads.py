"""How many threads: doubled while it pays."""

import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import torch

from cavalcade.core import threads as threads_module
from cavalcade.core.threads import ThreadGovernor, fastest, free_cores, free_threads, use_threads
from cavalcade.ppo.threads import choose_threads


@pytest.fixture
def sleep(monkeypatch):
    """Lets time pass as it is measured, and no other."""
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: now[0])
    monkeypatch.setattr(threads_module, "time", clock)

    def passing(seconds):
        now[0] += seconds

    return passing


@pytest.mark.parametrize(("speedup", "chosen"), [((1, 2, 4), 4), ((1, 2, 2), 2), ((1, 0.1, 9), 1), ((1, 1.05, 9), 1)])
def test_threads_are_doubled_while_it_pays(speedup, chosen, sleep, monkeypatch):
    monkeypatch.setattr(threads_module, "free_cores", lambda most: most)
    now = [1]
    times = dict(zip((1, 2, 4), speedup, strict=True))

    def use(count):
        now[0] = count

    assert fastest(lambda: sleep(0.02 / times[now[0]]), use, 4) == chosen
    assert now[0] == chosen


def test_the_most_is_tried_even_if_it_is_no_power_of_two(sleep, monkeypatch):
    monkeypatch.setattr(threads_module, "free_cores", lambda most: most)
    tried = []
    fastest(lambda: sleep(0.01 / tried[-1]), tried.append, 3)
    assert tried == [1, 2, 3, 3]


def test_torch_gets_one_thread():
    count = choose_threads()
    assert 1 <= count <= numba.config.NUMBA_NUM_THREADS  # pyright: ignore
    use_threads(count)
    assert numba.get_num_threads() == count
    assert torch.get_num_threads() == 1


def watched(seconds_of, rounds, free_of, monkeypatch):
    """The threads that a governor uses, round by round, and the rounds in which it counted free cores.

    seconds_of(threads, round): how long a round takes; free_of(round): free cores of two.
    """
    monkeypatch.setattr(numba, "get_num_threads", lambda: 2)
    used, counted, now, at = [], [], [2], [-1]

    def count(most, probes):
        assert (most, probes) == (2, 3 if now[0] == 2 else 1)
        counted.append(at[0])
        return free_of(at[0])

    def use(threads):
        now[0] = threads

    governor = ThreadGovernor(use, count)
    for i in range(rounds):
        at[0] = i
        used.append(now[0])
        governor.lap(seconds_of(now[0], i))
    return used, counted


def test_threads_that_help_are_kept_and_counted_once_more(monkeypatch):
    used, counted = watched(lambda threads, _: 1.0 / threads, 100, lambda _: 2, monkeypatch)
    assert used == [2] * 100
    assert counted == [-1, 1]


@pytest.mark.parametrize("wrong", [-1, 5], ids=["at the start", "later"])
def test_a_wrong_count_beside_a_neighbour_is_noticed(wrong, monkeypatch):
    """A neighbour who is there all the time; both cores seem to be free once."""
    used, _ = watched(lambda threads, _: 0.1 if threads == 1 else 1.0, 50, lambda i: 1 + (i == wrong), monkeypatch)
    assert used.count(2) == 1


def test_a_neighbour_who_was_there_first_is_avoided_from_the_start(monkeypatch):
    used, _ = watched(lambda threads, _: 0.1 if threads == 1 else 1.0, 50, lambda _: 1, monkeypatch)
    assert used == [1] * 50


def test_a_neighbour_is_avoided_and_all_threads_come_back_when_it_is_gone(monkeypatch):
    def busy(threads, i):
        return 0.1 if threads == 1 else 1.0 if 10 <= i < 60 else 0.06

    used, _ = watched(busy, 200, lambda i: 1 if 10 <= i < 60 else 2, monkeypatch)
    assert used[:11] == [2] * 11
    assert used[11:60] == [1] * 49
    assert used[92:] == [2] * 108  # counted after 0.5, 1 and 2 seconds, in vain, and after 4 more


def test_counts_in_vain_become_rare(monkeypatch):
    _, counted = watched(lambda *_: 1.0, 100, lambda _: 1, monkeypatch)
    assert counted == [-1, 0, 2, 5, 10, 19, 35, 51, 67, 83, 99]


def test_work_that_has_become_slower_is_no_neighbour(monkeypatch):
    used, counted = watched(lambda _, i: 0.06 if i < 10 else 0.6, 100, lambda _: 2, monkeypatch)
    assert used == [2] * 100
    assert counted == [-1, 8, 10, 11, 12]


@pytest.mark.parametrize("threads", range(1, numba.config.NUMBA_NUM_THREADS + 1))  # pyright: ignore
def test_free_cores_are_between_one_and_those_asked_for(threads):
    before = numba.get_num_threads()
    assert 1 <= free_cores(threads) <= threads
    assert numba.get_num_threads() == before
    with free_threads():
        assert 1 <= numba.get_num_threads() <= before
    assert numba.get_num_threads() == before


def test_work_that_takes_longer_together_had_fewer_cores(sleep, monkeypatch):
    """As long together as alone: a core each; twice as long: one for both."""
    monkeypatch.setattr(threads_module, "_compute", lambda rounds: sleep(0.005) or 0)
    for seconds, free in ((0.005, 2), (0.006, 2), (0.0075, 1), (0.010, 1), (0.030, 1)):
        monkeypatch.setattr(threads_module, "_compute_together", lambda rounds, marks, s=seconds: sleep(s))
        assert threads_module._cores_had(np.zeros(2, np.uint64)) == pytest.approx(0.01 / seconds)
        assert free_cores(2) == free


@pytest.mark.parametrize(
    ("found", "free"), [((2.0, 2.0), 2), ((2.0, 1.0, 2.0, 1.0, 2.0, 1.0), 1), ((1.0, 2.0, 2.0), 2)]
)
def test_all_cores_must_be_free_twice_in_a_row(found, free, monkeypatch):
    probes = iter(found)
    monkeypatch.setattr(threads_module, "_cores_had", lambda marks: next(probes))
    assert free_cores(2) == free
    assert not list(probes)


def test_nothing_is_timed_beside_neighbours(monkeypatch):
    """All threads are taken; the governor uses fewer."""
    monkeypatch.setattr(threads_module, "free_cores", lambda most: 1)
    tried = []
    assert fastest(lambda: pytest.fail("timed"), tried.append, 4) == 4
    assert tried == [4]


@pytest.mark.skipif(sys.platform != "linux", reason="GNU OpenMP prints its settings on Linux")
def test_waiting_threads_spin_briefly():
    """Whatever copy of OpenMP serves torch and Numba: it has read the setting."""
    script = "import numpy, cavalcade.core.threads as t; t._compute_together(9, numpy.zeros(2, numpy.uint64))"
    chosen = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    plain = {name: value for name, value in os.environ.items() if name not in chosen} | {"OMP_DISPLAY_ENV": "VERBOSE"}
    for given, spins in (({}, "20000"), ({"GOMP_SPINCOUNT": "77"}, "77"), ({"OMP_WAIT_POLICY": "PASSIVE"}, "0")):
        done = subprocess.run(
            [sys.executable, "-c", script], env=plain | given, capture_output=True, text=True, check=True
        )
        assert set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)) == {spins}
