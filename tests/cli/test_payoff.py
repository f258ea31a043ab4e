"""`cavalcade payoff`: Blues against Reds."""

import json
from pathlib import Path

import numpy as np
import pytest

import cavalcade
from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.own_red import SLEEP
from cavalcade.envs.cage2.protocol import nine_cells
from cavalcade.envs.cage2.scripted import BLUES

from .helpers import refused, run

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_table(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(EXAMPLES)
    file = tmp_path / "table.json"
    size = ("--steps", "20", "--episodes", "30", "--json", file)
    status, out, err = run(capsys, "payoff", "react", "sleep", "--reds", "bline,own_red:mix", *size)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "mean return of Blue ± 95 %, 30 episodes of 20 steps per cell, revision head"
    assert lines[2].split() == ["Blue", "bline", "own_red:mix", "worst", "Red"]
    assert [line.split()[0] for line in lines[3:]] == ["react", "sleep"]
    table = json.loads(file.read_text())
    assert (table["steps"], table["episodes"], table["revision"], table["seed"]) == (20, 30, "head", 1)
    named = [(cell["blue"], cell["red"]) for cell in table["cells"]]
    assert named == [(blue, red) for blue in ("react", "sleep") for red in ("bline", "own_red:mix")]
    assert f"{table['cells'][0]['mean']:.2f} ± {table['cells'][0]['interval']:.2f}" in lines[3]
    assert lines[4].endswith(min(table["cells"][2:], key=lambda cell: cell["mean"])["red"])


def test_cells_are_those_of_the_protocol():
    options = {"episodes": 40, "revision": "leaderboard-2022", "seed": 3}
    found = cavalcade.payoff(["react"], reds=["meander"], steps=30, **options)
    rng = np.random.default_rng(0)  # react draws nothing
    (cell,) = nine_cells(lambda env: BLUES["react"](env, rng), reds=["meander"], horizons=[30], **options)
    assert found.scores[0][1:] == (cell.mean, cell.interval, 40)
    assert found["react against meander"].mean == cell.mean


def test_functions_and_progress():
    def asleep(s, e, key):
        return SLEEP, 0

    seen = []
    found = cavalcade.payoff(
        ["sleep", "random"], reds=[asleep, "sleep"], steps=5, episodes=3, progress=lambda *at: seen.append(at)
    )
    assert seen == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert [cell["red"] for cell in found.plain["cells"]] == ["asleep", "sleep"] * 2
    assert found["sleep against asleep"].mean == 0
    with pytest.raises(ConfigError, match="0 Blues and 3 Reds"):
        cavalcade.payoff([])
    with pytest.raises(ConfigError, match="stepz"):
        cavalcade.payoff(["sleep"], stepz=5)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "0 Blues and 3 Reds; name at least one of each"),
        (("wolf",), "'wolf' is not a run, a checkpoint, a search, a policy file, model:NAME or one of random"),
        (("sleep", "--reds", "wolf"), "red is 'wolf'; it must be one of bline"),
        (("sleep", "--reds", "no_such_reds:x"), "the module no_such_reds cannot be imported"),
        (("sleep", "--steps", "0"), "steps is 0"),
        (("sleep", "--episodes", "1"), "episodes is 1"),
    ],
)
def test_bad_input(capsys, args, words):
    assert words in refused(capsys, "payoff", *args)
