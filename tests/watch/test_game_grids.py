"""Episodes on grids are those of their environments; policies of searches play."""

import csv
import dataclasses

import numpy as np
import pytest

import cavalcade
from cavalcade.core.errors import ConfigError
from cavalcade.envs.gridworld import GRIDWORLD
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.envs.mettagrid.tasks import load_game
from cavalcade.targets.mettagrid.arenas import chosen
from cavalcade.vector.hosted import HELDOUT_SEEDS
from cavalcade.watch.games.arenas import arena_episode
from cavalcade.watch.games.library import Library

TASK = MettagridTask(
    task="forage", env_options=("agents=4", "size=9", "mines=3", "generators=2", "altars=2", "walls=3")
)
SMALL = {"num_envs": 5, "max_episodes": 2, "total_episodes": 30, "n_workflows": 2, "hidden": (8,), "score_episodes": 4,
         "confirm": 1, "rivals": 1, "threads": 1, "progress": False}  # fmt: skip
SPOTS = {(0, 0): "north_west", (4, 4): "south_east", (0, 4): "north_east", (4, 0): "south_west"}


def test_an_arena_is_shown_as_it_was():
    data = arena_episode(None, "", 3, 25, TASK)
    game = load_game(TASK.task, TASK.options)
    env = Arenas(game, 4, seed=HELDOUT_SEEDS + 3)
    env.reset()
    t, rows = env.tables, np.array(data["map"]["rows"])
    assert rows.shape == (9, 9)
    assert [kind for kind in data["map"]["kinds"] if kind == "wall"] == ["wall"]
    for step in data["steps"]:
        if "action" in step:
            env.step(step["action"])
        row, column = np.array(step["at"]).T
        np.testing.assert_array_equal((row + t.margin) * t.stride + column + t.margin, env.state.place[0])
        assert not rows[row, column].any()
        np.testing.assert_allclose(step["total"], env.state.total[0], atol=1e-3)
        np.testing.assert_array_equal(step["holds"], env.state.inventory[0])
        np.testing.assert_allclose(step["reward"], env.buffers.reward, atol=1e-4)
    assert len(data["steps"]) == 26
    with pytest.raises(ConfigError, match="from 1 to 2,000"):
        arena_episode(None, "", 3, 0, TASK)


def test_an_arena_of_the_package_is_that_of_the_compiled_simulator():
    pytest.importorskip("mettagrid")
    compiled, package = (
        arena_episode(None, "", 3, 25, dataclasses.replace(TASK, simulator=simulator))
        for simulator in ("compiled", "package")
    )
    assert package["steps"] == compiled["steps"]
    assert package["map"] == compiled["map"]
    assert package["meta"]["resources"] == compiled["meta"]["resources"]
    assert len(package["meta"]["actions"]) == len(compiled["meta"]["actions"])


def test_an_arena_that_only_the_package_plays_says_why():
    pytest.importorskip("mettagrid")
    task = dataclasses.replace(TASK, stats=("no.such.statistic",))
    assert chosen(task).game is None
    assert "'no.such.statistic' is not counted" in arena_episode(None, "", 3, 5, task)["meta"]["note"]


def test_the_last_step_of_an_arena_is_shown():
    task = dataclasses.replace(TASK, env_options=(*TASK.env_options, "max_steps=7"))
    assert len(arena_episode(None, "", 3, 25, task)["steps"]) == 8


def test_the_gridworld_of_a_search_is_the_game_of_its_score(tmp_path):
    cavalcade.search("gridworld", **SMALL, run=tmp_path / "grid")
    library = Library(tmp_path)
    rows = list(csv.DictReader((tmp_path / "grid" / "search.csv").read_text().splitlines()))
    for row in [row for row in rows if row["kind"] == "order"][:3]:
        game = library.play({"run": "grid", "member": row["number"]})
        assert game["meta"]["order"] == row["order"]
        assert game["steps"][-1]["total"][0] == pytest.approx(float(row["score"]), abs=0.05)
        order = row["order"].split(">") if ">" in row["order"] else None
        seen = []
        for before, after in zip(game["steps"], game["steps"][1:], strict=False):
            (r, c), (r1, c1) = before["at"][0], after["at"][0]
            assert abs(r - r1) + abs(c - c1) <= 1
            new = [GRIDWORLD.names[i] for i in range(4) if after["holds"][0][i] > before["holds"][0][i]]
            assert new == [SPOTS.get((r1, c1))] * len(new)
            seen += new
        assert order is None or seen == order[: len(seen)]
    with pytest.raises(ConfigError, match="no finished training"):
        library.play({"run": "grid", "member": "999"})
    found = library.options({"run": "grid"})["run"]
    assert (found["kind"], found["target"]) == ("search", "gridworld")
    assert len(found["trainings"]) == sum(row["kind"] == "order" for row in rows)


def test_policies_of_a_search_play_by_order_and_by_number(tmp_path):
    cavalcade.search("cage2", **SMALL, horizon=10, rollout_steps=10, run=tmp_path / "found")
    library = Library(tmp_path)
    row = next(row for row in library.options({"run": "found"})["run"]["trainings"])
    by_order = library.play({"run": "found", "order": row["order"], "horizon": "10"})
    assert by_order["meta"]["order"] == row["order"]
    by_number = library.play({"run": "found", "member": str(row["number"]), "horizon": "10"})
    assert by_number["meta"]["order"] == row["order"]
    assert len(by_number["steps"]) == 11
    found = library.branch(
        {"run": "found", "member": str(row["number"]), "at": "2", "action": "Sleep", "continuations": "9"}
    )
    assert found["other"]["action"] == "Sleep"
