"""Compiled kernels are cached by the content of all sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import cavalcade
from cavalcade import jit

SCRIPT = "from cavalcade.envs.cage2 import Cage2; print(Cage2(3, seed=1).state.key.tolist())"


def run(folder, cache):
    environment = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, env=environment, capture_output=True, text=True)
    return done.stdout


def compiled(cache):
    return sorted(path.name for path in cache.rglob("*.nbc"))


def test_an_edit_in_a_called_module_takes_effect(tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(
        Path(cavalcade.__file__).parent, tmp_path / "cavalcade", ignore=shutil.ignore_patterns("__pycache__")
    )
    first = run(tmp_path, cache)
    kernels = compiled(cache)
    assert kernels
    assert run(tmp_path, cache) == first
    assert compiled(cache) == kernels, "the second process compiled nothing"

    called = tmp_path / "cavalcade" / "rng.py"  # the kernel itself is in cpu.py
    source = called.read_text()
    called.write_text(source.replace("0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"))
    assert run(tmp_path, cache) != first
    assert len(compiled(cache)) == 2 * len(kernels)

    called.write_text(source)
    assert run(tmp_path, cache) == first
    assert len(compiled(cache)) == 2 * len(kernels)


def test_old_folders_are_cleared_away(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    parent = tmp_path / "cavalcade" / "kernels"
    for age in range(12):
        (parent / f"old{age}").mkdir(parents=True)
        os.utime(parent / f"old{age}", (1000 - age, 1000 - age))
    jit.cache_path.cache_clear()
    try:
        folder = Path(jit.cache_path())
    finally:
        jit.cache_path.cache_clear()
    assert folder.is_dir()
    assert len(list(parent.iterdir())) == 8
    assert (parent / "old0").exists()
    assert not (parent / "old11").exists()


def test_the_users_own_cache_setting_is_left_alone():
    before = jit.config.CACHE_DIR
    jit.kernel(lambda: 0)
    assert before == jit.config.CACHE_DIR
