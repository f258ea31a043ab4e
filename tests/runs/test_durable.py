"""Files are replaced whole or not at all, and flushed with their names."""

import os

import pytest

from cavalcade.cli.parse import check_folder
from cavalcade.core.errors import ConfigError
from cavalcade.runs.durable import make_folder, replacing


@pytest.fixture
def flushed(monkeypatch):
    """Names of files and folders that are flushed, in sequence."""
    found, real = [], os.fsync

    def fsync(handle):
        found.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def test_a_file_is_flushed_before_its_name(tmp_path, flushed):
    with replacing(tmp_path / "x") as aside:
        aside.write_text("new")
        assert not (tmp_path / "x").exists()
    assert (tmp_path / "x").read_text() == "new"
    assert flushed == [".writing-x", tmp_path.name]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    def interrupted():
        with replacing(tmp_path / "x") as aside:
            aside.write_text("half")
            raise KeyboardInterrupt

    (tmp_path / "x").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x": "old"}


def test_a_device_is_written_and_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "x")
    with replacing(tmp_path / "x") as aside:
        assert aside == tmp_path / "x"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_new_folders_are_flushed_with_their_names(tmp_path, flushed):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert flushed == ["a", tmp_path.name]


def test_a_file_to_be_written_is_tested_without_a_trace_and_without_waiting(tmp_path):
    check_folder("out", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"out is .*pipe; it cannot be written"):
        check_folder("out", tmp_path / "pipe")
