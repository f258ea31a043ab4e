"""Whatever is in the place of a file, reading it ends with an error of one line."""

import os

import numpy as np
import pytest

from cavalcade.core.archives import DAMAGED, read_arrays
from cavalcade.core.files import check_file, complete_lines, plain_json, plain_yaml, read_text


@pytest.mark.parametrize("what", ["folder", "pipe", "device", "missing", "loop"])
def test_only_regular_files_are_read(tmp_path, what):
    path = tmp_path / "x"
    made = {
        "folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "device": lambda: path.symlink_to("/dev/zero"),
        "missing": lambda: None, "loop": lambda: path.symlink_to(path),
    }  # fmt: skip
    made[what]()
    with pytest.raises(OSError):  # noqa: PT011
        read_text(path)


def test_files_have_a_size_up_to_which_they_are_read(tmp_path):
    path = tmp_path / "x"
    path.write_text("text")
    assert read_text(path) == "text"
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than 64 MB"):
        read_text(path)
    check_file(path)  # no limit


def test_lines_of_a_log_are_bounded_and_complete(tmp_path):
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthr")
    assert list(complete_lines(path)) == ["one\n", "two\n"]
    assert list(complete_lines(path, end=4)) == ["one\n"]
    assert list(complete_lines(path, end=0)) == []
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a terabyte of zeros, as they come from a file system after a crash
    with pytest.raises(ValueError, match="a line has more than 1000 bytes"):
        list(complete_lines(path, most=1000))
    with pytest.raises(IsADirectoryError):
        list(complete_lines(tmp_path))


@pytest.mark.parametrize("parse", [plain_json, plain_yaml])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "9" * 10_000, "\t- a: ["])
def test_broken_text_is_a_value_error_of_one_line(parse, text):
    with pytest.raises(ValueError, match=r".") as error:
        parse(text)
    assert "\n" not in str(error.value)


def test_archives_that_unpack_to_far_too_much_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", zeros=np.zeros(1 << 20, np.uint8))
    assert read_arrays(tmp_path / "a.npz")["zeros"].shape == (1 << 20,)
    with pytest.raises(OSError, match="unpacks to more than 0 MB"):
        read_arrays(tmp_path / "a.npz", most=1 << 19)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DAMAGED):
        read_arrays(tmp_path / "one.npy")
