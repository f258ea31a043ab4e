"""Each example runs as its docstring says, with its own numbers or smaller ones."""

import importlib
import runpy
import sys
from pathlib import Path

import pytest

from ..processes import Process

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_example(name: str):
    """An example as a module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def run_example(name: str) -> None:
    """`python examples/NAME.py`."""
    path = EXAMPLES / f"{name}.py"
    sys.argv, sys.path[:0] = [str(path)], [str(EXAMPLES)]
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("first_steps", "one game: return"),
        ("callbacks", "finished: False"),
        ("resume_and_evaluate", "changes: [{"),
        ("order_search", "does the order matter? cannot tell"),
        ("batch_environment", "all over: True"),
        ("own_network", "new seeds, greedy"),
        ("own_environment", "new seeds, greedy"),
        ("own_red", "random_target"),
    ],
)
def test_example(name, said, tmp_path):
    done = Process(run_example, name, cwd=tmp_path).wait()
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
