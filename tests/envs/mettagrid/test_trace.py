"""Recorded episodes of the package are played again without it; damaged files are refused in one line."""

import json

import numpy as np
import pytest

from cavalcade.core.errors import TraceError
from cavalcade.envs.mettagrid.arena import DifferenceError
from cavalcade.envs.mettagrid.trace import SHIPPED, load_trace, replay, save_trace

FILES = sorted(SHIPPED.glob("*.npz"))


def test_shipped_episodes_are_small_and_cover_what_is_compiled():
    assert sum(path.stat().st_size for path in FILES) <= 300_000
    games = [load_trace(path).game for path in FILES]
    assert {"forage-0", "forage-easy-0", "forage-sparse-0", "navigation-0"} <= {path.stem for path in FILES}
    text = json.dumps([repr(game) for game in games])
    for part in ("FirstMatch", "AllOf", "Transfer", "Clear", "Periodic", "SharedTag", "AnyOf", "Not(", "statistic",
                 "blocks_vision=True", "local_position", "last_action_move", "modifiers=(('"):  # fmt: skip
        assert part in text, part
    assert any(len(game.roles) > 1 for game in games)
    assert {game.agents for game in games} >= {1, 2, 7, 24}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_shipped_episodes_are_played_equally(path):
    replay(load_trace(path))


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("hashes", lambda x: x + np.array([1, 0, 0], np.uint32), "observations differ, step 1 of episode 1, seed 0"),
        ("hashes", lambda x: x ^ (np.arange(len(x)) == 4)[:, None] * np.array([0, 1, 0]), "rewards differ, step 5"),
        ("hashes", lambda x: x + np.array([0, 0, 1], np.uint32), "places, inventories, returns or statistics differ"),
        ("first", lambda x: x + 1, "observations differ, step 0 of episode 1"),
        ("maps", lambda x: x[:, ::-1], "the map of episode 1, seed 0 is another"),
    ],
)
def test_a_difference_is_named(tmp_path, field, change, words):
    trace = load_trace(SHIPPED / "forage-0.npz")
    wrong = vars(trace) | {field: change(getattr(trace, field)).astype(getattr(trace, field).dtype)}
    save_trace(tmp_path / "x.npz", type(trace)(**wrong))
    with pytest.raises(DifferenceError, match=words):
        replay(load_trace(tmp_path / "x.npz"))


def test_damaged_files_are_refused(tmp_path):
    path, trace = tmp_path / "x.npz", load_trace(SHIPPED / "forage-0.npz")
    with pytest.raises(TraceError, match=r"x.npz: no such file"):
        load_trace(path)
    raw = (SHIPPED / "forage-0.npz").read_bytes()
    for damaged in (b"", b"text", raw[: len(raw) // 2], raw.replace(b"PK", b"KP")):
        path.write_bytes(damaged)
        with pytest.raises(TraceError, match=r"x.npz: not a recorded episode of MettaGrid, or damaged"):
            load_trace(path)
    for field, value in (("actions", trace.actions[:-1]), ("maps", trace.maps[0]), ("seed", "x"), ("game", 3)):
        save_trace(path, type(trace)(**vars(trace) | {field: value}))
        with pytest.raises(TraceError, match="damaged"):
            load_trace(path)


def test_what_the_package_plays_is_recorded(tmp_path):
    pytest.importorskip("mettagrid")
    from cavalcade.envs.mettagrid.random_configs import random_config
    from cavalcade.envs.mettagrid.trace import record

    save_trace(tmp_path / "x.npz", record(random_config(4), 30, seed=2, wild=0.1))
    replay(load_trace(tmp_path / "x.npz"))
