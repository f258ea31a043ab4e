"""The soak compares speeds of like with like, and its workers are really killed."""

import contextlib
import random
import threading
import time

import pytest
from benchmarks.faults.soak import killing, speed_at_the_end

from cavalcade.config import HostConfig
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source
from cavalcade.vector.supervisor import Supervisor


def test_workers_are_killed():
    killed, over = [], threading.Event()
    killer = threading.Thread(target=killing, args=(random.Random(0), over, killed))
    with contextlib.closing(Hosted(gym_source("CartPole-v1"), 4, HostConfig(backend="shared", workers=2))) as env:
        assert isinstance(env.pool, Supervisor)
        pids = {one.process.pid for one in env.pool.workers.values()}
        killer.start()
        while not killed:
            time.sleep(0.01)
        over.set()
        killer.join()
    assert set(killed) <= pids


def test_a_machine_that_becomes_slower_is_no_fault():
    assert speed_at_the_end([(1.0, 1.0), (1.2, 1.2)], [(2.0, 2.0), (3.0, 3.0)]) == 1.0


def test_a_process_that_becomes_slower_is():
    assert speed_at_the_end([(1.0, 1.0)], [(2.5, 2.0), (2.5, 2.0), (9.0, 2.0)]) == pytest.approx(0.8)
