"""Parts of a batch in threads: results in order, the caller takes part, errors reach it."""

import threading

import pytest

from cavalcade.core.part_threads import PartThreads


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    made = PartThreads()
    made.use(request.param)
    return made


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_are_in_order(threads, count):
    assert threads.map(lambda a, b: a - 2 * b, range(count), range(count)) == [-i for i in range(count)]


def test_a_single_part_is_computed_by_the_caller(threads):
    assert threads.map(lambda _: threading.current_thread(), [0]) == [threading.current_thread()]


def test_parts_run_at_the_same_time(threads):
    """Each waits for as many others as there are threads."""
    met = threading.Barrier(threads.threads, timeout=60)
    assert len(threads.map(lambda _: met.wait(), range(threads.threads))) == threads.threads


@pytest.mark.parametrize("broken", range(4))
def test_an_error_reaches_the_caller_when_all_are_done(threads, broken):
    running = []

    def work(i):
        running.append(i)
        try:
            if i == broken:
                raise ValueError(i)
        finally:
            running.remove(i)

    with pytest.raises(ValueError, match=str(broken)):
        threads.map(work, range(4))
    assert not running
    assert threads.map(abs, [-1, -2]) == [1, 2]
