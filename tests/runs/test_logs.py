"""Logs: held back, whole rows only, cut to a checkpoint."""

import json

import pytest

from cavalcade.core.errors import RunError
from cavalcade.runs import logs
from cavalcade.runs.logs import Log, check_sizes
from cavalcade.runs.notes import add_notes


def test_rows_are_held_back_for_a_hundred(tmp_path, monkeypatch):
    monkeypatch.setattr(logs.time, "monotonic", lambda: 0.0)
    log = Log(tmp_path / "log", "head")
    log.write(str(i) for i in range(98))
    assert (tmp_path / "log").read_text() == ""
    log.write(["98"])
    assert (tmp_path / "log").read_text().splitlines() == ["head", *map(str, range(99))]
    log.write(["99"])
    log.close()
    assert (tmp_path / "log").read_text().splitlines()[-1] == "99"


def test_or_for_two_seconds(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    log = Log(tmp_path / "log")
    log.write(["a"])
    assert (tmp_path / "log").read_text() == ""
    now[0] = 2.5
    log.write(["b"])
    assert (tmp_path / "log").read_text() == "a\nb\n"
    log.close()


def test_what_came_after_the_checkpoint_is_cut_off(tmp_path):
    log = Log(tmp_path / "log", "head")
    log.write(["kept"])
    offset = log.flush()
    log.write(["later"])
    log.close()
    log = Log(tmp_path / "log", "head", offset=offset)
    log.write(["other"])
    log.close()
    assert (tmp_path / "log").read_text() == "head\nkept\nother\n"


def test_a_log_that_lost_rows_is_refused(tmp_path):
    (tmp_path / "log").write_text("x\n")
    with pytest.raises(RunError, match="has 2 bytes, the checkpoint says 100"):
        Log(tmp_path / "log", offset=100)
    assert (tmp_path / "log").read_text() == "x\n"


def test_logs_that_are_no_files_are_found_before_anything_is_written(tmp_path):
    (tmp_path / "log").mkdir()
    with pytest.raises(RunError, match="log cannot be read: it is not a file; restore it"):
        check_sizes(tmp_path, {"log": 0})


class FullDisk:
    """A file on a disk with room for a few bytes."""

    def __init__(self, file, room):
        self._file, self._room = file, room

    def write(self, content):
        written = content[: self._room]
        self._room -= len(written)
        return self._file.write(written)

    def __getattr__(self, name):
        return getattr(self._file, name)


def test_no_half_rows_on_a_full_disk(tmp_path):
    log = Log(tmp_path / "log")
    log.write(["one"])
    log.flush()
    whole = log._file
    log._file = FullDisk(whole, 5)  # pyright: ignore
    log.write(["two", "three"])
    with pytest.raises(RunError, match="cannot be written: No space left on device; free disk space and resume"):
        log.flush()
    assert (tmp_path / "log").read_text() == "one\n"
    log._file = whole  # somebody made room: nothing was lost
    log.close()
    assert (tmp_path / "log").read_text() == "one\ntwo\nthree\n"


def test_notes_are_appended_with_their_update(tmp_path):
    add_notes(tmp_path, 3, ["a worker was restarted", "höher"])
    add_notes(tmp_path, 4, [])
    add_notes(tmp_path, 5, ["again"])
    rows = [json.loads(line) for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert [(r["update"], r["note"]) for r in rows] == [(3, "a worker was restarted"), (3, "höher"), (5, "again")]
