"""Code that takes too long is interrupted."""

import signal
import threading
import time

import pytest

from cavalcade.core.time_limit import time_limit


def stubborn(caught):
    """Hangs, also once it was interrupted."""
    try:
        time.sleep(1000)
    except TimeoutError as error:
        caught.append(error)
        time.sleep(1000)


def test_what_hangs_is_interrupted_even_if_it_catches_the_first():
    caught = []
    with pytest.raises(TimeoutError, match=r"no answer for 0\.01 s"), time_limit(0.01):
        stubborn(caught)
    assert len(caught) == 1


def test_nothing_rings_afterwards():
    before = signal.getsignal(signal.SIGALRM)
    with time_limit(1000):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_other_threads_run_on():
    done = []

    def work():
        with time_limit(0.001):
            time.sleep(0.01)
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
