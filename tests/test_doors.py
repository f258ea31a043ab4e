"""What listens, and where: nothing but the page that is asked for, on loopback. Ray: search/test_ray_executor.py."""

import ast
from pathlib import Path

import psutil
import pytest

import cavalcade
from cavalcade.watch.serve import beside

from .watch.helpers import make_run

SMALL = {"num_envs": 4, "rollout_steps": 5, "minibatches": 1, "hidden": (8,), "threads": 1, "progress": False}


def listening():
    """Addresses on which this process and its children listen: (address, port)."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = set()
    for process in family:
        try:
            sockets = process.net_connections("inet")
        except psutil.Error:
            continue
        found |= {tuple(s.laddr) for s in sockets if s.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)}
    return found


@pytest.mark.parametrize(
    ("backend", "more"), [("serial", {}), ("pipe", {}), ("shared", {}), ("async", {}), ("async", {"staleness": 2})]
)
def test_a_training_with_workers_listens_nowhere(tmp_path, backend, more):
    before, seen = listening(), []

    def look(update):
        seen.append(listening() - before)

    workers = {} if backend == "serial" else {"workers": 2, **more}
    options = {**SMALL, **workers, "backend": backend, "steps": 20, "run": tmp_path / "run", "callbacks": [look]}
    cavalcade.train("gym:CartPole-v1", **options)
    assert seen
    assert not any(seen)


def test_a_watched_run_is_reachable_from_this_machine_only(tmp_path):
    before = listening()
    with beside(make_run(tmp_path / "runs" / "a"), True):
        found = listening() - before
    assert [address for address, _ in found] == ["127.0.0.1"]


def test_no_module_can_call_home():
    clients = {"requests", "httpx", "aiohttp", "urllib3", "http.client", "urllib.request", "ftplib", "smtplib"}
    for path in Path(cavalcade.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            assert not clients & set(names), path
