"""What pages ask for, also of runs that are damaged, cut or deleted."""

import json
import shutil

import pytest

from cavalcade.watch import searches
from cavalcade.watch.events import Tail

from .helpers import make_run, row


def test_the_list(client, runs):
    make_run(runs / "a")
    found = client.get("/api/runs").json()
    assert found["root"] == "runs"
    assert [run["path"] for run in found["runs"]] == ["a"]


def test_a_run(client, runs):
    path = make_run(runs / "a b" / "ü", checkpoint=20)
    (path / "notes.jsonl").write_text('{"date": "2026-01-01", "update": 1, "note": "<b>slow</b>"}\nbroken\n')
    (path / "history.jsonl").write_text('{"date": "2026-01-02", "update": 5, "changes": {"episodes": [1, 2]}}\n')
    found = client.get("/api/run", params={"path": "a b/ü"}).json()
    assert found["config"]["ppo.learning_rate"] == 0.002
    assert found["phases"] == {"collect": 3.0, "update": 1.0}
    assert [c["update"] for c in found["checkpoints"]] == [20]
    assert [note["note"] for note in found["notes"]] == ["<b>slow</b>"]
    assert found["history"][0]["changes"] == {"episodes": [1, 2]}


def test_curves(client, runs):
    make_run(runs / "a", updates=500)
    found = client.get("/api/metrics", params={"path": "a", "points": 100}).json()
    assert len(found["axes"]["steps"]) == len(found["metrics"]["return"]["lines"][1]) == 100


@pytest.mark.parametrize(
    ("params", "word"),
    [({"points": "x"}, "points"), ({"points": "1e9"}, "points"), ({"axis": "colour"}, "axis"), ({"low": "x"}, "low")],
)
def test_bad_questions(client, runs, params, word):
    make_run(runs / "a")
    answer = client.get("/api/metrics", params={"path": "a", **params})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"{word} is ")


@pytest.mark.parametrize("query", ["run=a", "run=a&offset=x", "&".join(["run=a&offset=0"] * 21)])
def test_bad_subscriptions(client, runs, query):
    make_run(runs / "a")
    assert client.get(f"/api/events?{query}").status_code == 400


def test_a_run_that_is_damaged_everywhere_is_still_shown(client, runs):
    path = make_run(runs / "a", checkpoint=20)
    for name in ("meta.json", "heldout.json", "history.jsonl", "notes.jsonl", "checkpoints/00000020/state.json"):
        (path / name).write_bytes(b"\xff{\x00[")
    (path / "metrics.jsonl").write_bytes(b'\xff\n{"update": NaN, "return": "x", "steps": [1]}\n{"update": 1e999}\n')
    assert client.get("/api/runs").status_code == 200
    assert client.get("/api/run", params={"path": "a"}).status_code == 200
    found = client.get("/api/metrics", params={"path": "a"})
    assert (found.status_code, found.json()["damaged"]) == (200, 1)


def test_a_run_that_vanishes(client, runs):
    path = make_run(runs / "a")
    shutil.rmtree(path)
    for address in ("run", "metrics", "search", "search/findings"):
        assert client.get(f"/api/{address}", params={"path": "a"}).json()["error"] == "'a' is not there (any more)"


def test_new_rows_are_followed(runs):
    path = make_run(runs / "a")
    log = path / "metrics.jsonl"
    tail = Tail(path, log.stat().st_size)
    assert tail.look() == []
    with log.open("a") as file:
        file.write(row(21) + row(22)[:30])
    ((name, data),) = tail.look()
    assert (name, data["axes"]["update"]) == ("rows", [21])
    with log.open("a") as file:
        file.write(row(22)[30:])
    assert tail.look()[0][1]["axes"]["update"] == [22]


def test_a_log_that_is_cut_is_loaded_again(runs):
    path = make_run(runs / "a")
    tail = Tail(path, (path / "metrics.jsonl").stat().st_size)
    (path / "metrics.jsonl").write_text(row(1))
    assert tail.look()[0][0] == "reset"
    assert tail.look() == []


def test_other_files_and_the_end_of_a_run_are_told(runs):
    path = make_run(runs / "a")
    tail = Tail(path, (path / "metrics.jsonl").stat().st_size)
    (path / "heldout.json").write_text("{}")
    assert tail.look() == [("change", {})]
    shutil.rmtree(path)
    assert tail.look() == [("gone", {})]


COLUMNS = (
    "number,purpose,kind,order,seed,start,rung,posterior_mean,posterior_sd,ucb,score,standard_error,heldout,tail,"
    "compliance,counted,true_compliance,true_counted,choice,original,chance,binding,training_task,training_bonus,"
    "training_total,training_compliance,multiplier,bound,passed,stop,updates,episodes,steps,used_episodes,seconds\n"
)


def training(number, order, score, purpose="search"):
    return (
        f"{number},{purpose},order,{order},{number},,0,,,,{score},0.1,{score},{score},1,3,1,3,1,1,0.3,16,"
        f"{score},0,{score},1,,4 4 8 4 8 4,1,budget,100,5000,200000,40000,5.40\n"
    )


@pytest.fixture
def search(runs):
    path = runs / "s"
    path.mkdir()
    (path / "config.yaml").write_text("target: gridworld\nsearcher: gp-ucb\ntask:\n  horizon: 40\n")
    good, bad = "north_east>south_west>north_west>south_east", "south_east>north_west>south_west>north_east"
    (path / "search.csv").write_text(COLUMNS + training(0, good, 8.8) + training(1, bad, -2) + "2,search,or")
    (path / "decisions.jsonl").write_text(
        '{"number": 0, "order": 7, "rung": 0, "made": 0, "known": [], "pending": []}\n'
    )
    return path


def test_a_search_that_goes_on(client, search):
    found = client.get("/api/search", params={"path": "s"}).json()
    assert [t["score"] for t in found["trainings"]] == [8.8, -2]  # the torn row is left for later
    assert (len(found["decisions"]), found["summary"]) == (1, None)
    (listed,) = client.get("/api/runs").json()["runs"]
    assert (listed["kind"], listed["score"], listed["trainings"]) == ("search", 8.8, 2)


def test_findings_so_far_are_those_of_the_search_itself(client, search):
    found = client.get("/api/search/findings", params={"path": "s"}).json()
    assert [r["score"] for r in found["ranking"]] == [8.8, -2]
    assert len(found["posterior"]) == 24
    assert found["verdict"] is None
    best = max(found["posterior"], key=lambda r: r["mean"])
    assert best["order"] == found["ranking"][0]["order"] == found["best"]


def test_findings_are_not_made_again_without_new_trainings(search, monkeypatch):
    found = searches.Findings()
    made = []
    monkeypatch.setattr(searches, "findings_of", lambda config, trainings: made.append(len(trainings)) or {})
    found(search)
    found(search)
    assert made == [2]


def test_a_summary_is_shown_without_its_list_of_trainings(client, search):
    (search / "summary.json").write_text(json.dumps({"answer": "Yes", "results": [1, 2]}))
    found = client.get("/api/search", params={"path": "s"}).json()
    assert found["summary"] == {"answer": "Yes"}
    assert client.get("/api/runs").json()["runs"][0]["state"] == "finished"


def test_findings_of_a_damaged_search(client, search):
    (search / "config.yaml").write_text("target: nothing\nsearcher: gp-ucb\n")
    answer = client.get("/api/search/findings", params={"path": "s"})
    assert (answer.status_code, answer.json()["error"][:30]) == (404, "the findings cannot be made: t")
