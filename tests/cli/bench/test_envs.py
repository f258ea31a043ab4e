"""`cavalcade bench envs` as a user types it."""

import json

import pytest

from ..helpers import refused, run


def test_bench_envs_prints_and_writes(capsys, tmp_path):
    args = ("--parts", "cheap,waiting", "--seconds", "0.1", "--envs", "8", "--json", tmp_path / "f.json")
    status, out, _ = run(capsys, "bench", "envs", *args)
    assert status == 0
    for name in ("serial", "pipe", "shared", "async", "Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv"):
        assert name in out
    assert "× the best of" in out
    figures = json.loads((tmp_path / "f.json").read_text())
    assert all(rate > 0 for rate in figures["cheap"]["8"].values())
    assert 0 <= figures["waiting"]["shared"] < 0.5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--parts", "cyborg"], "without --cyborg"),
        (["--envs", "2"], "envs is 2"),
        (["--kills", "0"], "kills is 0"),
    ],
)
def test_bad_input(capsys, args, words):
    assert words in refused(capsys, "bench", "envs", *args)
