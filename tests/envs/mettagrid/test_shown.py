"""An arena to look at shows what the package shows, and needs no package."""

import sys

import numpy as np
import pytest

from cavalcade.core.errors import StateError
from cavalcade.envs.mettagrid.episode import Episode
from cavalcade.envs.mettagrid.random_configs import random_config
from cavalcade.envs.mettagrid.shown import ShownArena
from cavalcade.envs.mettagrid.supported import game_from
from cavalcade.envs.mettagrid.tasks import load_task
from tests.cli.helpers import run


@pytest.fixture
def no_package(monkeypatch):
    """The mettagrid package cannot be imported."""
    for name in [name for name in sys.modules if name.split(".")[0] == "mettagrid"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mettagrid", None)
    monkeypatch.setattr("cavalcade.cli.verify_mettagrid.installed_version", lambda: "")


@pytest.mark.parametrize(
    "config", [load_task("forage-easy", {"agents": 4, "size": 11, "max_steps": 20}), random_config(7)]
)
def test_it_shows_what_the_package_shows(config):
    mine, theirs = ShownArena(game_from(config), 5, index=8), Episode(config, 5, index=8)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert mine.picture() == theirs.picture()
        assert mine.held() == theirs.held()
        assert not mine.over
        actions = rng.integers(0, mine.game.actions, mine.game.agents)
        mine.step(actions)
        theirs.step(actions)
        assert mine.current_step == theirs.current_step
    np.testing.assert_array_equal(mine.total, theirs.total)
    assert mine.over == theirs.over == (mine.game.max_steps == 20)


def test_an_episode_that_is_over_stays_as_it_is():
    arena = ShownArena(game_from(load_task("forage", {"agents": 2, "size": 9, "max_steps": 2})), 1)
    for _ in range(2):
        arena.step(np.ones(2, int))
    assert arena.over
    with pytest.raises(StateError, match="the episode is over"):
        arena.step(np.ones(2, int))
    assert arena.current_step == 2


def test_games_are_shown_and_verified_without_the_package(no_package, capsys):
    status, out, _ = run(capsys, "play", "mettagrid", "--task", "forage-sparse", "--steps", "3", "--seed", "91")
    assert status == 0
    assert out.count("@") == 24
    status, out, _ = run(capsys, "verify", "mettagrid")
    assert status == 0
    assert "recorded files of mettagrid 0.26.22" in out
    assert "0 differences" in out
    status, _, error = run(capsys, "verify", "mettagrid", "--task", "forage")
    assert status == 2
    assert "MettaGrid needs a package" in error
