"""Searches spread over a Ray cluster of several nodes: the same results, whatever is lost on the way."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from cavalcade.core.errors import ConfigError, RunError, WorkerError
from cavalcade.core.ray_session import connected, import_ray
from cavalcade.envs.cage2.task import Cage2Task, Original
from cavalcade.runs.directory import RunDirectory
from cavalcade.runs.files import DECISIONS
from cavalcade.search.config import RayConfig, SearchConfig
from cavalcade.search.decisions import again, read
from cavalcade.search.merge import read_shares, take_over
from cavalcade.search.run import Search
from tests.envs.cage2.fake_cyborg import make_clone
from tests.search.test_run import TINY, search, table

ALL = replace(TINY, searcher="exhaustive", max_episodes=8, total_episodes=2000, confirm=0, parallel_orders=0)
ON_RAY = {"executor": "ray", "ray": RayConfig(task_updates=3)}


@pytest.fixture(scope="module")
def cluster():
    """A head that trains nothing and a node of two CPUs, on loopback."""
    import_ray()
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    found.doomed = found.add_node(num_cpus=2)
    with connected(found.address):
        yield found
    found.shutdown()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("ray") / "local"
    search(path, ALL)
    return path


def by_number(path):
    """The table by training; when it was done, and what was used by then, may differ."""
    rows = sorted(table(path), key=lambda row: int(row["number"]))
    for row in rows:
        del row["used_episodes"]
    return rows


def policies(path):
    return {file.name: file.read_bytes() for file in (path / "policies").iterdir()}


def test_orders_end_the_same_with_a_node_lost_on_the_way(cluster, tmp_path):
    slow = replace(ALL, max_episodes=300, total_episodes=6 * 300 * ALL.ppo.num_envs)  # six orders
    search(tmp_path / "local", slow)
    run = RunDirectory(tmp_path / "ray", SearchConfig)
    with run.locked():
        found = Search(run, replace(slow, executor="ray", ray=RayConfig(task_updates=200)), threads=1)
        while not found.done:
            before = found.updates
            results = list(found.advance())
            lost = any("lost" in note for note in found.executor.notes)
            begun = found.updates > before and not results  # a task has just begun; there are no other CPUs
            if begun and found.results and not lost:  # else it was done before its node was gone: again
                cluster.remove_node(cluster.doomed, allow_graceful=False)
                cluster.doomed = cluster.add_node(num_cpus=2)
        found.checkpoint()
        found.close()
    assert any("lost" in note for note in found.executor.notes)
    assert by_number(tmp_path / "ray") == by_number(tmp_path / "local")
    assert policies(tmp_path / "ray") == policies(tmp_path / "local")
    assert len(found.results) == 6
    assert found.steps == 6 * slow.steps_per_order
    assert found.used == sum(r.episodes for r in found.results)


def test_a_search_goes_on_on_the_cluster_where_it_was_stopped(cluster, undisturbed, tmp_path):
    search(tmp_path / "a", replace(ALL, **ON_RAY, checkpoint_every=7), stop_at=25)
    search(tmp_path / "a", resume=True)
    assert by_number(tmp_path / "a") == by_number(undisturbed)


def test_shards_of_several_orders_end_the_same(cluster, undisturbed, tmp_path):
    search(tmp_path / "a", replace(ALL, executor="ray", ray=RayConfig(task_orders=5, task_updates=100)))
    assert by_number(tmp_path / "a") == by_number(undisturbed)
    assert policies(tmp_path / "a") == policies(undisturbed)


def test_decisions_can_be_made_again_from_the_log(cluster, tmp_path):
    found = search(tmp_path / "a", replace(TINY, **ON_RAY, confirm=0))
    decisions = read(tmp_path / "a")
    assert len(decisions) == len(found.results) == 7
    assert any(len(d.known) < d.made for d in decisions)  # nobody waited for the slowest
    chosen = again(found.config, found.orders, found.results, decisions)
    assert [p.order for p in chosen] == [d.order for d in decisions]
    other = [d._replace(known=d.known[:-1]) if d.known else d for d in decisions]
    assert [p.order for p in again(found.config, found.orders, found.results, other)] != [d.order for d in decisions]


def test_a_training_in_cyborg_is_one_task(cluster, tmp_path):
    """It ends as on this machine, also where it was stopped, and the tables are equal."""
    clone = make_clone(tmp_path / "clone", fails=False)
    small = replace(
        TINY, target="cyborg", task=Cage2Task(horizon=10), original=Original(cyborg=str(clone)),
        ppo=replace(TINY.ppo, num_envs=4), searcher="fixed", orders=("user_priority", "critical_first"), rounds=2,
        max_episodes=4, total_episodes=64, score_episodes=4, confirm=0, parallel_orders=0, checkpoint_every=1,
    )  # fmt: skip
    search(tmp_path / "local", small)
    far = replace(small, executor="ray")
    search(tmp_path / "a", far, stop_at=1)
    found = search(tmp_path / "a", resume=True)
    assert any("a training in CybORG is one task" in note for note in found.executor.notes)
    assert len(found.results) == 4
    assert by_number(tmp_path / "a") == by_number(tmp_path / "local")
    assert policies(tmp_path / "a") == policies(tmp_path / "local")
    gone = replace(far, original=Original(cyborg=str(tmp_path)))
    with pytest.raises(ConfigError, match="is not a clone"):
        search(tmp_path / "b", gone)


def test_an_error_of_a_task_ends_the_search_with_a_checkpoint(cluster, tmp_path):
    config = replace(ALL, **ON_RAY, checkpoint_every=2)
    search(tmp_path / "a", config, stop_at=4)
    (newest,) = (tmp_path / "a" / "checkpoints").glob("*4")
    state = json.loads((newest / "state.json").read_text())
    begun = next(plain for plain in state["shards"] if plain["info"])
    begun["slots"] *= 2  # a shard of more members than its state has
    del state["hash"]
    (newest / "state.json").write_text(json.dumps(state))
    with pytest.raises(WorkerError, match=r"(?s)a task of Ray failed: .*resume with: cavalcade search --resume"):
        search(tmp_path / "a", resume=True)


def test_a_task_that_no_node_is_large_enough_for_is_refused(cluster, tmp_path):
    with pytest.raises(ConfigError, match="task_cpus is 64 and task_gpus 0; no node of the cluster has as many"):
        search(tmp_path / "a", replace(ALL, executor="ray", ray=RayConfig(task_cpus=64)))


def test_shares_make_up_the_whole(undisturbed, tmp_path):
    for i in (1, 2, 3):
        found = search(tmp_path / f"share-{i}", replace(ALL, shard=f"{i}/3"))
        assert [r.member.number % 3 for r in found.results] == [i - 1] * 8
    shares = read_shares([tmp_path / f"share-{i}" for i in (3, 1, 2)])
    run = RunDirectory(tmp_path / "whole", SearchConfig)
    with run.locked():
        joined = Search(run, shares.config, threads=1)
        take_over(joined, shares)
        joined.close()
    search(tmp_path / "whole", resume=True)
    assert by_number(tmp_path / "whole") == by_number(undisturbed)
    assert policies(tmp_path / "whole") == policies(undisturbed)
    assert json.loads((tmp_path / "whole" / DECISIONS).read_text().splitlines()[5])["number"] == 5


def test_shares_that_stop_early_leave_no_gaps(tmp_path):
    early = replace(ALL, patience=2, total_episodes=8 * 8 * 15)  # 15 orders, if none stops early
    for i in (1, 2):
        search(tmp_path / f"share-{i}", replace(early, shard=f"{i}/2"))
    shares = read_shares([tmp_path / "share-1", tmp_path / "share-2"])
    assert sorted(shares.results) == list(range(15))
    run = RunDirectory(tmp_path / "whole", SearchConfig)
    with run.locked():
        joined = Search(run, shares.config, threads=1)
        take_over(joined, shares)
        joined.close()
    whole = search(tmp_path / "whole", resume=True)  # goes on with what was not used
    assert sorted(r.member.number for r in whole.results) == list(range(len(whole.results)))
    assert len(whole.results) > 15
    assert whole.used <= early.total_episodes


def test_shares_that_make_up_nothing_are_refused(undisturbed, tmp_path):
    search(tmp_path / "one", replace(ALL, shard="1/2", max_episodes=1))
    search(tmp_path / "two", replace(ALL, shard="2/2", max_episodes=2))
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    search(tmp_path / "half", replace(ALL, shard="2/2", max_episodes=1, checkpoint_every=1), stop_at=1)
    search(tmp_path / "none", replace(ALL, shard="2/2", max_episodes=1), stop_at=0)
    for paths, words in (
        (["one"], "shard 2/2 is missing"),
        (["one", "copy"], "the same shard, 1/2"),
        (["one", "two"], "other settings"),
        (["one", "half"], "not done yet"),
        (["one", "none"], "has no checkpoint yet"),
        ([undisturbed], "not a shard of a search"),
    ):
        with pytest.raises(RunError, match=words):
            read_shares([tmp_path / path for path in paths])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shard": "0/2"}, "i from 1 to n"),
        ({"shard": "two"}, "i from 1 to n"),
        ({"shard": "1/2", "searcher": "gp-ucb"}, "only exhaustive"),
        ({"ray": RayConfig(task_cpus=2)}, "needs --executor ray"),
        ({"executor": "ray", "device": "cuda", "target": "cage2"}, "leave out --device"),
        ({"executor": "ray", "ray": RayConfig(task_gpus=1)}, "only cage2 runs on GPUs"),
        ({"ray": RayConfig(ray_address="auto")}, "needs --executor ray"),
    ],
)
def test_bad_settings_are_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        replace(ALL, **change)


def test_more_shares_than_trainings_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="only 24 trainings"):
        search(tmp_path / "a", replace(ALL, shard="1/25"))


def test_ray_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"Ray is not installed: pip install 'cavalcade\[ray\]'"):
        search(tmp_path / "a", replace(ALL, **ON_RAY))


def test_a_cluster_that_is_not_there_is_named(tmp_path):
    address = "127.0.0.1:1"
    code = "import sys; from cavalcade.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "search", "gridworld", "--executor", "ray", "--run", str(tmp_path / "a")]
    found = subprocess.run([*command, "--ray-address", address], capture_output=True, text=True, timeout=900)
    assert found.returncode == 2
    assert found.stderr.endswith("Ray cannot be reached at 127.0.0.1:1: Connection refused\n")


LISTENING = """
import ray, psutil  # imported by somebody else, first
from cavalcade.core.ray_session import connected

with connected(""):
    with connected("") as same:
        assert same is ray
    assert ray.is_initialized()  # the first still uses it
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    sockets = [c.laddr.ip for p in family for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert sockets
    assert set(sockets) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, sockets
assert not ray.is_initialized()
"""


def test_without_an_address_nothing_listens_beyond_loopback():
    subprocess.run([sys.executable, "-c", LISTENING], check=True, timeout=900)
