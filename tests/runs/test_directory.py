"""Run directories: one process each, never overwritten."""

import fcntl
import json
import os

import pytest

from cavalcade.config.base import RunConfig
from cavalcade.core.errors import ConfigError, RunError
from cavalcade.runs import directory
from cavalcade.runs.directory import RunDirectory, is_search, new_path, open_run, provenance, write_whole
from cavalcade.runs.notes import add_notes
from cavalcade.targets.cage2.config import Cage2Config


def test_one_process_at_a_time(tmp_path):
    with RunDirectory(tmp_path / "a", Cage2Config).locked():
        with pytest.raises(RunError, match="is in use by another process; wait for it, or choose another --run"):
            RunDirectory(tmp_path / "a", Cage2Config).locked().__enter__()
        with RunDirectory(tmp_path / "b", Cage2Config).locked():
            pass
    with RunDirectory(tmp_path / "a", Cage2Config).locked():
        pass


@pytest.mark.parametrize("error", [ConfigError, RunError])
def test_what_is_refused_leaves_no_folder(tmp_path, error):
    with pytest.raises(error), RunDirectory(tmp_path / "runs" / "a", Cage2Config).locked():
        raise error("no")
    assert not (tmp_path / "runs").exists()
    run = RunDirectory(tmp_path / "runs" / "a", Cage2Config)
    with pytest.raises(error), run.locked():
        begin_and_fail(run, error)
    assert (run.path / "notes").exists()


def begin_and_fail(run, error):
    (run.path / "notes").touch()
    raise error("no")


def test_a_run_is_never_begun_twice(tmp_path):
    run = RunDirectory(tmp_path, Cage2Config)
    run.begin(Cage2Config(seed=3), provenance() | {"threads": 2})
    assert open_run(tmp_path).config() == Cage2Config(seed=3)
    assert run.threads() == 2
    assert json.loads((tmp_path / "meta.json").read_text())["cores"] == os.cpu_count()
    with pytest.raises(RunError, match="already contains a run; resume with --resume"):
        run.begin(Cage2Config(), {})
    assert open_run(tmp_path).config().seed == 3
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(RunError, match=r"meta.json cannot be read"):
        run.threads()


def test_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"is not a run directory: it has no config.yaml"):
        open_run(tmp_path)
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="is not YAML"):
        open_run(tmp_path).config()
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not YAML"):
        open_run(tmp_path).config()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be created or written"):
        RunDirectory(tmp_path / "file" / "run", Cage2Config).locked().__enter__()
    with pytest.raises(RunError, match="cannot be written: Not a directory"):
        write_whole(tmp_path / "file" / "x", "text")


def test_a_look_at_the_lock_is_waited_for(tmp_path, monkeypatch):
    """`watch` holds a shared lock for a moment to see whether a run is in use."""
    (tmp_path / ".lock").touch()
    handle = os.open(tmp_path / ".lock", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    monkeypatch.setattr(directory.time, "sleep", lambda _: fcntl.flock(handle, fcntl.LOCK_UN))
    with RunDirectory(tmp_path, RunConfig).locked():
        pass
    os.close(handle)


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "20260102-030405")
    found = []
    for _ in range(3):
        found.append(new_path("gym:A/B"))
        found[-1].mkdir(parents=True)
    assert [str(path) for path in found] == [
        "runs/gym-A-B-20260102-030405", "runs/gym-A-B-20260102-030405-2", "runs/gym-A-B-20260102-030405-3",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["3", "text", "[]", "null"])
def test_settings_that_are_no_mapping_are_not_those_of_a_search(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    assert not is_search(tmp_path)


@pytest.mark.parametrize("threads", [-1, 1e308, 10**30, "many"])
def test_absurd_threads_are_refused(tmp_path, threads):
    write_whole(tmp_path / "meta.json", json.dumps(provenance() | {"threads": threads}))
    with pytest.raises(RunError, match=r"meta\.json cannot be read"):
        RunDirectory(tmp_path, Cage2Config).meta()


def test_notes_that_are_a_pipe_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "notes.jsonl")
    with pytest.raises(RunError, match="cannot be written: it is not a file"):
        add_notes(tmp_path, 1, ["a note"])
