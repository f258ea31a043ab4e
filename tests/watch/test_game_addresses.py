"""Requests below /api/game: whatever is wrong with one is answered with a status of 4xx and one line."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from cavalcade.watch.games import routes

from .game_runs import folder_of_runs


@pytest.fixture(scope="module")
def client(tmp_path_factory, data):
    folder = folder_of_runs(tmp_path_factory, data)
    (folder / "lost").mkdir(exist_ok=True)
    (folder / "lost" / "config.yaml").write_text("target: gridworld\nsearcher: fixed\n")
    (folder / "lost" / "search.csv").write_text("number,kind,order,score\n1,order,x,not a number\n")
    (folder.parent / "outside.npz").write_bytes((folder / "games.npz").read_bytes())
    return TestClient(Starlette(routes=routes(folder)))


TWO = {"run": "two", "member": "0"}


@pytest.mark.parametrize(
    ("address", "query", "why"),
    [
        ("play", {}, "name a run or one of"),
        ("play", {"run": "two", "blue": "react"}, "one of both"),
        ("play", {"blue": "nobody"}, "must be one of random"),
        ("play", {"run": "young"}, "has no checkpoint yet"),
        ("play", {"run": "gone"}, "gone"),
        ("play", {"run": "../outside"}, "not a path below"),
        ("play", {"run": "/etc"}, "not a path below"),
        ("play", {"run": "games.npz"}, "is not a run"),
        ("play", {"run": "two", "member": "7"}, "has 2, numbered from 0"),
        ("play", {"run": "two", "order": "critical_first"}, "only policies of a search"),
        ("play", TWO | {"red": "os:system"}, "must be one of sleep"),
        ("play", TWO | {"revision": "old"}, "must be one of head"),
        ("play", TWO | {"horizon": "0"}, "from 1 to 1,000"),
        ("play", TWO | {"horizon": "100000"}, "from 1 to 1,000"),
        ("play", TWO | {"seed": "-1"}, "whole number"),
        ("play", TWO | {"seed": "9" * 17}, "must be below"),
        ("play", TWO | {"seed": "²"}, "whole number"),
        ("play", TWO | {"sampled": "perhaps"}, "must be one of true, false"),
        ("play", TWO | {"edits": "3:Fly User1"}, "it must be a name"),
        ("play", TWO | {"edits": "99:Sleep"}, "steps 1 to 12"),
        ("play", TWO | {"cell": "bline-31"}, "must be one of bline-30"),
        ("play", TWO | {"cell": "bline-30", "rank": "third"}, "must be one of worst"),
        ("play", TWO | {"cell": "bline-30", "rank": "40", "episodes": "40"}, "the cell has 40 games"),
        ("play", TWO | {"cell": "bline-30", "sampled": "true"}, "draws its actions"),
        ("branch", TWO | {"action": "Sleep"}, "at is ''"),
        ("branch", TWO | {"at": "3", "action": "<script>"}, "it must be a name"),
        ("branch", TWO | {"at": "3", "action": "145"}, "0 to 144"),
        ("branch", TWO | {"at": "0", "action": "Sleep"}, "steps 1 to 12"),
        ("branch", TWO | {"at": "13", "action": "Sleep"}, "steps 1 to 12"),
        ("branch", TWO | {"at": "3", "action": "Sleep", "continuations": "1"}, "from 2 to 10,000"),
        ("trace", {"trace": "gone.npz"}, "gone.npz"),
        ("trace", {"trace": "../outside.npz"}, "not a path below"),
        ("trace", {"trace": "two"}, "is not a file"),
        ("trace", {"trace": "notes.npz"}, "not a complete file"),
        ("trace", {"trace": "cut.npz"}, "not a complete file"),
        ("trace", {"trace": "two/config.yaml"}, "not a complete file"),
        ("trace", {"trace": "games.npz", "episode": "999"}, "numbered from 0"),
        ("trace", {"trace": "games.npz", "variant": "x"}, "must be one of challenge"),
        ("options", {"run": "gone"}, "gone"),
        ("options", {"run": "lost"}, "search.csv cannot be read: seed of training '1' is None"),
    ],
)  # fmt: skip
def test_bad_requests(client, address, query, why):
    answer = client.get(f"/api/game/{address}", params=query)
    assert 400 <= answer.status_code < 500
    (said,) = answer.json().values()
    assert why in said
    assert "\n" not in said


def test_what_can_be_chosen(client):
    found = client.get("/api/game/options", params={"run": "two"}).json()
    assert found["run"]["policies"] == 2
    assert found["run"]["task"]["red"] == "meander"
    assert found["run"]["checkpoints"]
    assert "react-restore" in found["blues"]
    assert len(found["actions"]) == 145


def test_games_are_answered(client):
    game = client.get("/api/game/play", params=TWO | {"horizon": "5"}).json()
    assert (game["kind"], len(game["steps"]), game["meta"]["run"]) == ("cage2", 6, "two")
    assert game["meta"]["blue"] == "two at update 2, greedy, policy 0 of 2"
    found = client.get("/api/game/branch", params=TWO | {"at": "2", "action": "Restore User1", "continuations": "9"})
    assert found.json()["other"]["action"] == "Restore User1"
    assert client.get("/api/game/trace", params={"trace": "games.npz"}).json()["meta"]["trace"] == "games.npz"
    assert client.post("/api/game/play").status_code == 405
