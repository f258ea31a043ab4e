"""Each example runs as its docstring says, with its own numbers or smaller ones."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(name: str):
    """An example as a module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("first_steps", "one game: return"),
        ("callbacks", "finished: False"),
        ("own_network", "new seeds, greedy"),
        ("own_environment", "new seeds, greedy"),
        ("own_red", "random_target"),
    ],
)
def test_example(name, said, tmp_path):
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
