"""Games below a folder: plays, ranks and branches them on request, and remembers the policies it has loaded."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.protocol import CELLS
from cavalcade.envs.cage2.scenario import ACTIONS, REDS, REVISIONS
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.gridworld import GRIDWORLD
from cavalcade.runs.directory import is_search, read_yaml, settings_of, target_of
from cavalcade.runs.files import SEARCH
from cavalcade.search.records import read_rows
from cavalcade.watch.games.arenas import arena_episode
from cavalcade.watch.games.branch import CONTINUATIONS, branch
from cavalcade.watch.games.cells import Ranking, first_of, ranking, ranking_data
from cavalcade.watch.games.choice import RANKS, Choice, action_of, whole
from cavalcade.watch.games.defender import Defender, defender_of, policy_at, stamp
from cavalcade.watch.games.grids import gridworld_episode
from cavalcade.watch.games.record import recorded
from cavalcade.watch.games.traces import trace_game
from cavalcade.watch.security import resolve

_KEPT = 8  # policies and rankings
_MOST_FILES = 500
T = TypeVar("T")
Query = Mapping[str, str]


class Library:
    """The games of a folder. Requests are answered one at a time: a game uses all cores."""

    _lock = threading.Lock()  # of the process: so do the threads of compiled kernels

    def __init__(self, root: Path):
        self._root = root.resolve()
        self._found: OrderedDict[Hashable, Any] = OrderedDict()

    def options(self, query: Query) -> dict[str, Any]:
        """What can be chosen: for games without a run, and of a run, if one is given."""
        found: dict[str, Any] = {
            "reds": REDS, "revisions": REVISIONS, "blues": list(BLUES), "cells": list(CELLS), "ranks": RANKS,
            "actions": ACTIONS,
        }  # fmt: skip
        if query.get("run"):
            found["run"] = self._about_run(query["run"])
        return found

    def play(self, query: Query) -> dict[str, Any]:
        """A game: of CAGE-2, an arena of MettaGrid or a gridworld, as the run has it."""
        with self._lock:
            if query.get("run") and (episode := self._grid_episode(query)):
                return episode
            choice = Choice.read(query)
            defender = self._defender(choice)
            number, rank = self._number(defender, choice)
            env = defender.game(choice, first=number)
            about: dict[str, Any] = {
                "blue": defender.name, "run": choice.run, "seed": choice.seed, "game": number,
                "sampled": choice.sampled, "drawn": defender.draws,
            }  # fmt: skip
            if policy := defender.policy:
                about |= {"update": policy.update, "order": policy.order, "task": {"red": defender.task.red}}
            if defender.scenario and not choice.cell and (changes := defender.scenario.differences):
                about["changes"] = changes
            if choice.cell:
                about |= {
                    "cell": choice.cell,
                    "rank": choice.rank if rank else "",
                    "ranking": rank and ranking_data(rank),
                }
            last = max((step for step, _ in choice.edits), default=0)
            if last > env.params.horizon:
                raise ConfigError(f"an edit is in step {last}; the game has steps 1 to {env.params.horizon}")
            env.reset()
            return recorded(env, defender.make(), defender.policy, edits=dict(choice.edits), about=about)

    def branch(self, query: Query) -> dict[str, Any]:
        """Both futures of a step, see `branch`."""
        with self._lock:
            choice = Choice.read(query)
            step, action = whole("at", query.get("at", "")), action_of(query.get("action", ""))
            count = whole("continuations", query.get("continuations", str(CONTINUATIONS)))
            defender = self._defender(choice)
            number, _ = self._number(defender, choice)
            return branch(defender, choice, number, step, action, count)

    def trace(self, query: Query) -> dict[str, Any]:
        """An episode of a file of recorded episodes."""
        name = query.get("trace", "")
        path = resolve(self._root, name)
        if not path.is_file():
            raise RunError(f"{name!r} is not a file in this folder")
        with self._lock:
            return trace_game(
                path, name, whole("episode", query.get("episode", "0")), query.get("variant", "challenge")
            )

    def files(self, query: Query) -> dict[str, Any]:
        """Files of recorded episodes below the folder."""
        found = []
        for path in self._root.rglob("*.npz"):
            if "checkpoints" not in path.parts and len(found) < _MOST_FILES:
                found.append(path.relative_to(self._root).as_posix())
        return {"traces": sorted(found)}

    def _about_run(self, name: str) -> dict[str, Any]:
        path = self._run(name)
        if is_search(path):
            return _about_search(path)
        target = target_of(path)
        found: dict[str, Any] = {"target": target, "kind": "run"}
        plain = read_yaml(path / "config.yaml") if (path / "config.yaml").exists() else {}
        if isinstance(plain, dict):
            task = plain.get("task")
            found |= {"policies": plain.get("policies", 1), "task": task if isinstance(task, dict) else {}}
        saved = path / "checkpoints"
        steps = (
            sorted((entry.name for entry in saved.iterdir() if entry.name.isdecimal()), key=int)
            if saved.is_dir()
            else []
        )
        return found | {"checkpoints": steps}

    def _grid_episode(self, query: Query) -> dict[str, Any] | None:
        """An episode of a run that is not of CAGE-2; None if it is."""
        path = self._run(query["run"])
        seed = whole("seed", query.get("seed") or "0")
        if is_search(path):
            if settings_of(path, "search").get("target") != "gridworld":
                return None
            member = query.get("member")
            return gridworld_episode(
                path, query["run"], query.get("order"), whole("member", member) if member else None
            )
        if target_of(path) != "mettagrid":
            return None
        steps = whole("horizon", query.get("horizon") or "200")
        policy = self._kept(("arena", *stamp(path)), lambda: policy_at(path))
        return arena_episode(policy, query["run"], seed, steps)

    def _defender(self, choice: Choice) -> Defender:
        path = self._run(choice.run) if choice.run else None
        who = (choice.blue, choice.order, choice.member, choice.sampled, choice.seed if _drawn(choice) else 0)
        key = ("blue", *(stamp(path) if path else ()), *who)
        return self._kept(key, lambda: defender_of(self._root, path, choice))

    def _number(self, defender: Defender, choice: Choice) -> tuple[int, Ranking | None]:
        """The index of a game in the stream of its seed, and the games among which it was chosen by rank."""
        if choice.game is not None or not choice.cell:
            return choice.game or 0, None
        key = ("cell", defender.name, choice.cell, choice.revision, choice.episodes, choice.seed)
        found = self._kept(key, lambda: ranking(defender, choice))
        return first_of(choice) + found.number(choice.rank), found

    def _run(self, name: str) -> Path:
        path = resolve(self._root, name)
        if not path.is_dir():
            raise RunError(f"{name!r} is not a run in this folder")
        return path

    def _kept(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made before, or is made now; the oldest is forgotten."""
        if key not in self._found:
            self._found[key] = make()
            while len(self._found) > _KEPT:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return self._found[key]


def _drawn(choice: Choice) -> bool:
    return bool(choice.blue) or choice.sampled


def _about_search(path: Path) -> dict[str, Any]:
    target = settings_of(path, "search").get("target")
    subtasks = GRIDWORLD if target == "gridworld" else CAGE2
    rows = [row for row in read_rows(path) if row["kind"] == "order"] if (path / SEARCH).exists() else []
    trainings = [{"number": int(row["number"]), "order": row["order"], "score": float(row["score"])} for row in rows]
    return {"target": target, "kind": "search", "subtasks": subtasks.names, "trainings": trainings}
