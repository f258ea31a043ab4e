"""What the server refuses."""

import os

import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from cavalcade.watch.security import COOKIE, resolve
from cavalcade.watch.serve import is_loopback
from cavalcade.watch.server import make_app

from .helpers import make_run

TRICKS = (
    "..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "./a", ".lock", "a/.lock", "a\\..\\secret", "a\0b",
    "%2e%2e/secret", "~", "link/secret",
)  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_paths_that_leave_the_folder_are_refused(client, runs, tmp_path, trick):
    make_run(runs / "a")
    make_run(tmp_path / "secret")
    (runs / "link").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(HTTPException):
        resolve(runs, trick)
    for address in ("run", "metrics", "search", "search/findings"):
        assert client.get(f"/api/{address}", params={"path": trick}).status_code == 404
    assert client.get("/api/events", params={"run": trick, "offset": 0}).status_code == 404


def test_a_run_that_is_a_link_out_of_the_folder_is_neither_listed_nor_shown(client, runs, tmp_path):
    make_run(tmp_path / "secret")
    (runs / "link").symlink_to(tmp_path / "secret", target_is_directory=True)
    assert client.get("/api/runs").json()["runs"] == []
    assert client.get("/api/run", params={"path": "link"}).status_code == 404


@pytest.mark.parametrize("name", ["metrics.jsonl", "meta.json", "config.yaml"])
def test_files_of_a_run_that_are_links_out_of_the_folder_are_not_read(client, runs, tmp_path, name):
    run = make_run(runs / "a")
    secret = tmp_path / "secret"
    os.replace(run / name, secret)
    (run / name).symlink_to(secret)
    if name == "config.yaml":
        assert client.get("/api/run", params={"path": "a"}).status_code == 404
    else:
        found = client.get("/api/run", params={"path": "a"}).json()
        assert found["meta"] == {} if name == "meta.json" else found["summary"]["update"] == 0
        assert client.get("/api/metrics", params={"path": "a"}).json()["rows"] == (20 if name == "meta.json" else 0)


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2fserver.py", "/etc/passwd"]
)
def test_nothing_but_assets_is_static(client, path):
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(client, method):
    assert client.request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:8642", 200), ("localhost:8642", 200), ("[::1]:8642", 200), ("evil.example", 421), ("", 421),
     ("127.0.0.1.evil.example:8642", 421), ("10.0.0.5:8642", 421)],
)  # fmt: skip
def test_foreign_hosts_are_refused(client, host, status):
    assert client.get("/api/runs", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
def test_requests_of_other_sites_are_refused(client, headers):
    assert client.get("/api/runs", headers=headers).status_code == 403


def test_a_link_from_elsewhere_opens_the_page(client):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"content-type": "text/plain"}, 415), ({"content-type": "application/json", "content-length": "9999999"}, 413)],
)
def test_posts_are_small_and_json(client, headers, status):
    assert client.post("/api/game/any", content=b"{}", headers=headers).status_code == status


def test_every_response_carries_the_policy(client):
    for path in ("/", "/static/shell.js", "/api/runs", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_a_notebook_may_frame_the_page_and_nobody_else(runs):
    framed = TestClient(make_app(runs, framed=True), base_url="http://127.0.0.1").get("/").headers
    assert "frame-ancestors 'self' http://localhost:*" in framed["content-security-policy"]
    assert "x-frame-options" not in framed


def test_other_machines_need_the_token(runs):
    client = TestClient(make_app(runs, host="0.0.0.0", token="geheim"), base_url="http://10.0.0.5:8642")
    assert client.get("/").status_code == 401
    assert client.get("/api/runs", params={"token": "wrong"}).status_code == 401
    assert client.get("/api/runs", headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401
    opened = client.get("/", params={"token": "geheim"})
    assert opened.status_code == 200
    assert "HttpOnly; SameSite=Strict" in opened.headers["set-cookie"]
    assert client.get("/api/runs").status_code == 200  # with the cookie


def test_with_all_interfaces_names_of_others_are_refused(runs):
    client = TestClient(make_app(runs, host="0.0.0.0", token="t"), base_url="http://evil.example")
    assert client.get("/", params={"token": "t"}).status_code == 421


def test_only_loopback_goes_without_a_token():
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.5", "example.org", "")))
