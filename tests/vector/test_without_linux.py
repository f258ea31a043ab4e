"""What Linux has and macOS lacks is used only where it is there."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cavalcade.config import HostConfig
from cavalcade.core import slices, threads
from cavalcade.ppo import shared_ranks
from cavalcade.vector.hosted import Hosted
from cavalcade.vector.source import gym_source

LINUX_ONLY = ("eventfd", "memfd_create", "pidfd_open", "sched_getaffinity")


@pytest.fixture
def without_linux(monkeypatch):
    for name in LINUX_ONLY:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")


def played(backend):
    """Observations of some steps of CartPole."""
    env = Hosted(gym_source("CartPole-v1"), 4, HostConfig(backend=backend, workers=2, async_factor=2), seed=3)
    try:
        env.reset()
        return np.array([env.step([i % 2, 1, 0, 1]).observation.copy() for i in range(30)])
    finally:
        env.close()


@pytest.mark.parametrize("backend", ["shared", "async"])
def test_hosted_environments_play_the_same(backend, without_linux):
    assert not hasattr(os, "eventfd")
    assert np.array_equal(played(backend), played("serial"))


def test_nothing_else_needs_linux(without_linux):
    assert threads.cores() == os.cpu_count()
    assert not slices.short_slices()
    assert not shared_ranks.available()


def test_workers_end_with_their_parent_where_sigio_is_ignored():
    code = (
        "import os, sys, time\nfrom cavalcade.vector.worker import end_with_parent\n"
        "end_with_parent(int(sys.argv[1]), 'darwin')\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    ours, theirs = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", code, str(ours)], pass_fds=(ours,), stdout=subprocess.PIPE)
    os.close(ours)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    os.close(theirs)
    assert child.wait(timeout=60) == 4
    child.stdout.close()
