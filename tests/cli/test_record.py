"""`cavalcade record`: what a user types, what comes back."""

import os

import numpy as np
import pytest

from .helpers import refused, run

FILE = "head_red-sleep_blue-decoy_green-off_T50_seed1036.npz"
SETTINGS = ("--red", "sleep", "--blue", "decoy", "--steps", "50", "--seed", "1036", "--episodes", "4")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["--cyborg PATH missing"]),
        (["--red", "wolf"], ["'wolf'", "bline", "meander", "sleep"]),
        (["--blue", "react"], ["'react'", "random", "reactive", "mix"]),
        (["--revision", "2021"], ["'2021'", "head", "leaderboard-2022"]),
        (["--wings", "2"], ["--wings", "--cyborg-python", "--episodes", "--out"]),
        (["--episodes", "0"], ["episodes is 0", "at least 1"]),
        (["--steps", "0"], ["steps is 0", "at least 1"]),
        (["--seed", "-1"], ["seed is -1", "at least 0"]),
        (["--revision", "leaderboard-2022"], ["revision is leaderboard-2022", "is of revision head", "606813b"]),
        (["--cyborg-python", "/nowhere/python"], ["/nowhere/python", "cannot be started"]),
    ],
)
def test_bad_input_is_answered_in_one_line(capsys, tmp_path, clone, args, words):
    given = ("--cyborg", clone, "--out", tmp_path / "out", *args) if args else ()
    err = refused(capsys, "record", *given)
    for word in words:
        assert word in err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_no_clone(capsys, tmp_path):
    assert "is not a clone of cage-challenge/cage-challenge-2" in refused(capsys, "record", "--cyborg", tmp_path)


def test_what_was_recorded_is_replayed_at_once(capsys, clone, data, tmp_path, pretend, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with np.load(data / FILE) as archive:
        fields = dict(archive.items())
    write = "shutil.copy({!r}, request['path'])\nanswer({{'episodes': 4}})\nanswer({{'written': True}})"
    pretend(write.format(str(data / FILE)))
    status, out, _ = run(capsys, "record", "--cyborg", clone, *SETTINGS)
    assert status == 0
    assert out.startswith(f"wrote traces/{FILE}\n")
    assert f"1 file, {len(fields['reward'])} episodes, " in out
    assert "0 mismatches" in out

    fields["reward"] = fields["reward"] - 1
    np.savez(tmp_path / "changed.npz", **fields)
    pretend(write.format(str(tmp_path / "changed.npz")))
    status, out, _ = run(capsys, "record", "--cyborg", clone, *SETTINGS, "--out", "other", "--revision", "head")
    assert status == 1
    assert "episode 0, step 0, reward" in out
    assert f"1 mismatch in {FILE}" in out


@pytest.mark.skipif(
    not {"CAVALCADE_CYBORG", "CAVALCADE_CYBORG_PYTHON"} <= set(os.environ),
    reason="needs a clone of cage-challenge-2 and an interpreter for it: CAVALCADE_CYBORG, CAVALCADE_CYBORG_PYTHON",
)
def test_episodes_of_the_real_cyborg(capsys, tmp_path):
    clone, python = os.environ["CAVALCADE_CYBORG"], os.environ["CAVALCADE_CYBORG_PYTHON"]
    args = ("--red", "meander", "--green", "--episodes", "3", "--steps", "30", "--out", tmp_path)
    status, out, _ = run(capsys, "record", "--cyborg", clone, "--cyborg-python", python, *args)
    assert status == 0
    assert "_red-meander_blue-mix_green-on_T30_seed0.npz: 3 episodes of 30 steps are equal" in out
    assert "1 file, 3 episodes, 90 steps, 0 mismatches" in out
