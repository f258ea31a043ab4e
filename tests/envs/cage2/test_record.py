"""Recording episodes of the original: settings, checkouts, processes that fail, and games of the real one."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2 import record as module
from cavalcade.envs.cage2.record import BLUES, Recording, record, revision_of
from cavalcade.envs.cage2.trace import load_trace, replay

SLEEPING = "head_red-sleep_blue-decoy_green-off_T50_seed1036.npz"

real = pytest.mark.skipif(
    not {"CAVALCADE_CYBORG", "CAVALCADE_CYBORG_PYTHON"} <= set(os.environ),
    reason="needs a clone of cage-challenge-2 and an interpreter for it: CAVALCADE_CYBORG, CAVALCADE_CYBORG_PYTHON",
)


def scan_file(clone):
    return clone / "CybORG" / "CybORG" / "Shared" / "Actions" / "AbstractActions" / "DiscoverNetworkServices.py"


def test_names_and_headers_are_those_of_the_files_there_are(data):
    found = set()
    for path in sorted(data.glob("*.npz")):
        with np.load(path) as archive:
            meta = json.loads(str(archive["meta"]))
        if meta["blue"] not in BLUES:
            continue
        settings = {name: meta[name] for name in ("red", "blue", "episodes", "steps", "seed")}
        recording = Recording(green=meta["green"] == "green", **settings)
        assert recording.name(meta["revision"]) == path.name
        assert json.loads(json.dumps(recording.meta(meta["revision"]))) == meta
        found.add(meta["blue"])
    assert found == set(BLUES)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"red": "wolf"}, "red is 'wolf'; it must be one of sleep, bline, meander, random"),
        ({"red": "mixed"}, "red is 'mixed'"),
        ({"blue": "react"}, "blue is 'react'; it must be one of random, decoy, reactive"),
        ({"episodes": 0}, "episodes is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**31}, "seed is 2147483648"),
    ],
)
def test_settings_that_cannot_be(setting, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        Recording(**setting)


def test_the_revision_is_read_from_the_source(clone):
    assert revision_of(clone) == "head"
    scan = scan_file(clone)
    line = scan.read_text()
    scan.write_text("            # " + line.lstrip())
    with pytest.raises(ConfigError, match=r"one of the two changes.*check out 606813b"):
        revision_of(clone)
    (clone / "CybORG" / "CybORG" / "Shared" / "Enums.py").write_text("            return cls.UNKNOWN\n")
    assert revision_of(clone) == "leaderboard-2022"
    scan.unlink()
    with pytest.raises(ConfigError, match=r"DiscoverNetworkServices.py cannot be read: .*a complete clone\?"):
        revision_of(clone)


def test_folders_that_are_no_clone(tmp_path):
    with pytest.raises(ConfigError, match="is not a clone of cage-challenge/cage-challenge-2"):
        record(Recording(), tmp_path, tmp_path)


def test_interpreters_that_do_not_do(clone, tmp_path):
    with pytest.raises(ConfigError, match=r"cyborg_python is /nowhere/python; it cannot be started: No such file"):
        record(Recording(), clone, tmp_path / "traces", python=Path("/nowhere/python"))
    with pytest.raises(RunError, match=r"CybORG's process ended: .*Error: .*give an interpreter with its dependencies"):
        record(Recording(), clone, tmp_path / "traces")  # the clone has nothing to import
    with pytest.raises(RunError, match=r"wrote '-W ignore .*' instead of an answer; give an interpreter"):
        record(Recording(), clone, tmp_path / "traces", python=Path("/bin/echo"))
    assert not (tmp_path / "traces").exists()


def test_a_process_that_fails_leaves_no_file(clone, tmp_path, pretend):
    pretend("answer({'episodes': 1})\nopen(request['path'], 'wb').write(b'half')\nraise OSError('disk is on fire')")
    seen = []
    with pytest.raises(RunError, match=r"^CybORG's process ended: OSError: disk is on fire$"):
        record(Recording(), clone, tmp_path / "traces", progress=seen.append)
    assert seen == [1]
    assert list((tmp_path / "traces").iterdir()) == []


def test_a_file_is_there_only_when_it_is_whole(clone, data, tmp_path, pretend):
    pretend(
        "for n in 1, 2, 3: answer({'episodes': n})\n"
        f"shutil.copy({str(data / SLEEPING)!r}, request['path'])\n"
        "answer({'written': True})"
    )
    seen, folder = [], tmp_path / "new" / "traces"

    def progress(done):
        seen.append(done)
        assert not list(folder.glob("*.npz"))

    recording = Recording("sleep", "decoy", episodes=3, steps=50, seed=1036)
    path = record(recording, clone, folder, progress=progress)
    assert seen == [1, 2, 3]
    assert list(folder.iterdir()) == [path] == [folder / SLEEPING]
    with pytest.raises(ConfigError, match="already exists; give another seed"):
        record(recording, clone, folder)


def test_a_folder_that_cannot_be(clone, tmp_path, pretend):
    pretend("")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file cannot be written to: Not a directory; give another folder"):
        record(Recording(), clone, tmp_path / "file")


def play(folder, **settings):
    """A recording in the real CybORG."""
    checkout, python = (Path(os.environ[name]) for name in ("CAVALCADE_CYBORG", "CAVALCADE_CYBORG_PYTHON"))
    return load_trace(record(Recording(**settings), checkout, folder, python=python))


def same(a, b):
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


@real
@pytest.mark.parametrize("green", [False, True])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_the_recorder_does_not_disturb_cyborg(data, tmp_path, red, green):
    """Where Blue sleeps the seed decides all: the files recorded by others come out again, to the last number."""
    revision = revision_of(Path(os.environ["CAVALCADE_CYBORG"]))
    (path,) = data.glob(f"{revision}_red-{red}_blue-sleep_green-{'on' if green else 'off'}_*.npz")
    expected = load_trace(path)
    seed = int(path.stem.partition("_seed")[2])
    found = play(tmp_path, red=red, blue="sleep", green=green, episodes=3, steps=expected.steps, seed=seed)
    assert set(found.fields) == set(expected.fields)
    for name, values in expected.fields.items():
        if values.ndim:
            assert found.fields[name].dtype == values.dtype, name
            assert same(found.fields[name], values[:3]), name


@real
@pytest.mark.parametrize("green", [False, True])
@pytest.mark.parametrize("red", ["bline", "meander", "sleep", "random"])
@pytest.mark.parametrize("blue", BLUES)
def test_what_is_recorded_is_the_same_game_here(tmp_path, blue, red, green):
    trace = play(tmp_path, red=red, blue=blue, green=green, episodes=2, steps=60, seed=7)
    assert [str(difference) for difference in replay(trace)] == []


@real
def test_a_seed_repeats_its_games(tmp_path):
    first, again, other = (play(tmp_path / str(i), episodes=2, steps=40, seed=i // 2) for i in range(3))
    assert all(same(values, again.fields[name]) for name, values in first.fields.items() if values.ndim)
    assert not same(first.fields["blue_action"], other.fields["blue_action"])


@real
@pytest.mark.parametrize(
    ("red", "place", "function"),
    [
        ("bline", "B_line", "choice"),
        ("meander", "Meander", "shuffle"),
        ("bline", "ExploitRemoteService", "choices"),
        ("bline", "ExploitRemoteService", "random"),
        ("bline", "ExploitAction", "random"),
        ("bline", "PrivilegeEscalate", "choice"),
    ],
)
def test_a_draw_that_goes_unheard_is_noticed(tmp_path, monkeypatch, red, place, function):
    source = module._RECORDER.read_text()
    deaf, n = re.subn(rf'^ +tap\(\w+ \+ "[\w.]*\b{place}", "{function}", \w+\)$', "", source, flags=re.MULTILINE)
    assert n == 1
    (tmp_path / "deaf.py").write_text(deaf)
    monkeypatch.setattr(module, "_RECORDER", tmp_path / "deaf.py")
    trace = play(tmp_path, red=red, episodes=2)
    assert list(replay(trace))
