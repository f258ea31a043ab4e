import subprocess
import sys
import urllib.request

import pytest

from .helpers import refused, run


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere",), "runs is nowhere; there is no such folder"),
        ((".", "--port", "0"), "port is 0; it must be from 1 to 65535"),
        ((".", "--port", "x"), "port is 'x'"),
        ((".", "--host", "no such host"), "host is 'no such host'"),
        ((".", "more"), "unexpected argument 'more'"),
    ],
)
def test_bad_input_is_one_line(capsys, args, said):
    assert said in refused(capsys, "watch", *args)


def test_a_missing_extra_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("cavalcade.watch.serve.find_spec", lambda name: None)
    assert "pip install 'cavalcade[watch]'" in refused(capsys, "watch", ".")
    assert "pip install 'cavalcade[watch]'" in refused(capsys, "train", "cage2", "--watch", "--episodes", "50")


@pytest.mark.parametrize(("host", "token"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_the_address_has_a_token_only_if_others_can_connect(capsys, monkeypatch, tmp_path, host, token):
    served = []
    monkeypatch.setattr("cavalcade.cli.watch.run_server", lambda root, listening, **options: served.append(options))
    status, out, _ = run(capsys, "watch", tmp_path, "--host", host)
    assert status == 0
    assert ("?token=" in out) == token
    assert bool(served[0]["token"]) == token
    assert served[0]["token"] in out


def test_it_serves_until_it_is_ended(tmp_path):
    command = [sys.executable, "-m", "cavalcade", "watch", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        address = process.stdout.readline().split()[1]
        with urllib.request.urlopen(f"{address}api/runs") as answer:
            assert answer.status == 200
        process.terminate()
        process.wait()
        assert process.stderr.read() == ""


def test_the_browser_opens_the_page_on_request(capsys, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("cavalcade.cli.watch.run_server", lambda root, listening, **options: None)
    monkeypatch.setattr("webbrowser.open", opened.append)
    _, out, _ = run(capsys, "watch", tmp_path, "--open")
    assert opened == [out.split()[1]]
    run(capsys, "watch", tmp_path)
    assert len(opened) == 1
