"""How many threads: doubled while it pays."""

from types import SimpleNamespace

import numba
import pytest
import torch

from cavalcade.core.threads import ThreadGovernor, fastest, use_threads
from cavalcade.ppo.threads import choose_threads


@pytest.fixture
def sleep(monkeypatch):
    """Lets time pass as it is measured, and no other."""
    now = [0.0]
    monkeypatch.setattr("cavalcade.core.threads.time", SimpleNamespace(perf_counter=lambda: now[0]))

    def passing(seconds):
        now[0] += seconds

    return passing


@pytest.mark.parametrize(("speedup", "chosen"), [((1, 2, 4), 4), ((1, 2, 2), 2), ((1, 0.1, 9), 1), ((1, 1.05, 9), 1)])
def test_threads_are_doubled_while_it_pays(speedup, chosen, sleep):
    now = [1]
    times = dict(zip((1, 2, 4), speedup, strict=True))

    def use(count):
        now[0] = count

    assert fastest(lambda: sleep(0.02 / times[now[0]]), use, 4) == chosen
    assert now[0] == chosen


def test_the_most_is_tried_even_if_it_is_no_power_of_two(sleep):
    tried = []
    fastest(lambda: sleep(0.01 / tried[-1]), tried.append, 3)
    assert tried == [1, 2, 3, 3]


def test_torch_gets_one_thread():
    count = choose_threads()
    assert 1 <= count <= numba.config.NUMBA_NUM_THREADS  # pyright: ignore
    use_threads(count)
    assert numba.get_num_threads() == count
    assert torch.get_num_threads() == 1


def watched(seconds_of, rounds, monkeypatch):
    """The threads that a watch uses, round by round; seconds_of(threads, round): how long a round takes."""
    monkeypatch.setattr(numba, "get_num_threads", lambda: 2)
    used, now = [], [2]

    def use(count):
        now[0] = count

    watch = ThreadGovernor(use)
    for i in range(rounds):
        used.append(now[0])
        watch.lap(seconds_of(now[0], i))
    return used


def test_threads_that_help_are_kept(monkeypatch):
    assert watched(lambda threads, _: 1.0 / threads, 100, monkeypatch) == [2] * 100


def test_a_neighbour_is_avoided_and_all_threads_come_back_when_it_is_gone(monkeypatch):
    def busy(threads, i):
        return 0.1 if threads == 1 else 1.0 if 10 <= i < 60 else 0.06

    used = watched(busy, 200, monkeypatch)
    assert used[:13] == [2] * 13
    assert used[13:60].count(1) > 40
    assert used[150:] == [2] * 50


def test_one_thread_is_left_again_if_it_is_no_better(monkeypatch):
    used = watched(lambda threads, i: (0.06 if i < 10 else 0.5) * (1 if threads == 2 else 1.9), 60, monkeypatch)
    assert used.count(1) <= 3
