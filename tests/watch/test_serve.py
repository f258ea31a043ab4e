"""Addresses, ports, notebooks, and the server beside a training."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from cavalcade import Run, SearchRun
from cavalcade.core.errors import ConfigError
from cavalcade.watch import serve
from cavalcade.watch.serve import PORT, address_of, beside, folder_of, listen

from .helpers import make_run


def test_the_next_port_is_taken_if_one_is_in_use():
    with listen() as first, listen() as second:
        ports = [one.getsockname()[1] for one in (first, second)]
        assert PORT <= ports[0] < ports[1]


def test_a_port_that_is_asked_for_and_in_use_is_an_error():
    with listen() as first:
        port = first.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port is {port} .*in use; choose another --port, or leave it out"):
            listen(port=port)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 0), ("127.0.0.1", 65536), ("127.0.0.1", -1), ("no such", 80)])
def test_bad_addresses(host, port):
    with pytest.raises(ConfigError, match=r"^(port|host) is "):
        listen(host, port)


def test_addresses():
    with listen() as found:
        port = found.getsockname()[1]
        assert address_of(found) == f"http://127.0.0.1:{port}/"
        assert address_of(found, "::1", "t", "#/run/a") == f"http://[::1]:{port}/?token=t#/run/a"
        assert address_of(found, "0.0.0.0", "t") == f"http://{socket.gethostname()}:{port}/?token=t"


def test_the_folder_that_a_run_is_in_is_watched_unless_it_is_no_folder_of_runs(runs, monkeypatch):
    assert folder_of(runs / "a b") == (runs, "#/run/a%20b")
    monkeypatch.chdir(runs)
    assert folder_of(Path("a")) == (runs / "a", "#/run/")


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'cavalcade\[watch\]'"):
        Run("runs/any").watch()


@pytest.mark.parametrize("kind", [Run, SearchRun])
def test_a_notebook_shows_a_frame(kind, runs):
    shown = kind(make_run(runs / "a")).watch(height=500)
    assert shown.address.endswith("/#/run/a")
    assert f'<iframe src="{shown.address}"' in shown._repr_html_()
    assert "height:500px" in shown._repr_html_()
    with urllib.request.urlopen(shown.address) as answer:
        assert b"Cavalcade" in answer.read()
        assert "frame-ancestors 'self' http://localhost:*" in answer.headers["content-security-policy"]


def test_beside_a_training_the_address_answers_and_the_server_ends_with_it(runs, capsys):
    path = make_run(runs / "a")
    with beside(path, True):
        address = capsys.readouterr().out.split()[1]
        with urllib.request.urlopen(address.partition("#")[0] + "api/runs") as answer:
            assert b'"path":"a"' in answer.read()
        (child,) = [p for p in psutil.Process().children() if "cavalcade.watch" in p.cmdline()]
        assert child.nice() > os.nice(0)
    assert not child.is_running()
    with beside(path, False):
        assert capsys.readouterr().out == ""


KILLED = """
import os, sys
from pathlib import Path
from cavalcade.watch.serve import beside
import psutil
with beside(Path(sys.argv[1]), True):
    print(psutil.Process().children()[0].pid, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_the_server_ends_also_when_the_training_is_killed(runs):
    done = subprocess.run([sys.executable, "-c", KILLED, make_run(runs / "a")], capture_output=True, text=True)
    child = int(done.stdout.splitlines()[-1])
    for _ in range(600):
        if not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.1)
    pytest.fail("the server outlives its training")


LIGHT = """
import pathlib, sys, cavalcade.watch.server
cavalcade.watch.server.make_app(pathlib.Path())
print(*({"torch", "numba", "matplotlib"} & sys.modules.keys()))
"""


def test_the_server_starts_without_torch_and_numba():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
