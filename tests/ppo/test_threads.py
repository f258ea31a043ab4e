"""How many threads: doubled while it pays."""

import time

import numba
import pytest
import torch

from cavalcade.ppo.threads import choose_threads, fastest, use_threads


@pytest.mark.parametrize(("speedup", "chosen"), [((1, 2, 4), 4), ((1, 2, 2), 2), ((1, 0.1, 9), 1), ((1, 1.05, 9), 1)])
def test_threads_are_doubled_while_it_pays(speedup, chosen):
    now = [1]
    seconds = dict(zip((1, 2, 4), speedup, strict=True))

    def use(count):
        now[0] = count

    assert fastest(lambda: time.sleep(0.02 / seconds[now[0]]), use, 4) == chosen
    assert now[0] == chosen


def test_the_most_is_tried_even_if_it_is_no_power_of_two():
    tried = []
    fastest(lambda: time.sleep(0.01 / tried[-1]), tried.append, 3)
    assert tried == [1, 2, 3, 3]


def test_torch_gets_one_thread():
    count = choose_threads()
    assert 1 <= count <= numba.config.NUMBA_NUM_THREADS  # pyright: ignore
    use_threads(count)
    assert numba.get_num_threads() == count
    assert torch.get_num_threads() == 1
