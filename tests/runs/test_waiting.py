"""A word to the user while something takes its time, where there is no terminal."""

import time
from types import SimpleNamespace

from cavalcade.runs import waiting as module
from cavalcade.runs.waiting import waiting


def test_what_is_quick_needs_no_word(capsys):
    with waiting("thinking", after=600) as news:
        news("thinking: 1 of 2")
    assert capsys.readouterr() == ("", "")


def test_what_takes_long_is_announced_and_followed(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with waiting("thinking", after=0, every=10) as news:
        announced, deadline = "", time.monotonic() + 300
        while not announced and time.monotonic() < deadline:  # by another thread
            time.sleep(0.01)
            announced += capsys.readouterr().err
        assert announced == "thinking ...\n"
        for second, n in ((9.0, 0), (11.0, 1), (12.0, 2), (20.0, 3)):
            now[0] = second
            news(f"thinking: {n} of 3")
    assert capsys.readouterr() == ("", "thinking: 1 of 3 ...\n")
