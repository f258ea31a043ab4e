"""Episodes of the search's gridworld as plain data, and the form that all episodes on a grid have."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.gridworld import GRIDWORLD, SIZE, Gridworld
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.runner import PolicyRunner
from cavalcade.ppo.state import scaling_from
from cavalcade.search.directory import open_search
from cavalcade.search.domains import make_environment
from cavalcade.search.members import ORDER, stored_as
from cavalcade.search.policies import POLICIES
from cavalcade.search.records import read_rows

_MOVES = ("up", "down", "left", "right")


def grid_data(
    meta: dict[str, Any], rows: list[list[int]], kinds: list[str], steps: list[dict[str, Any]]
) -> dict[str, Any]:
    """An episode: the map as rows of numbers, 0 for nothing and k for kinds[k − 1], and the agents in each step.

    A step after which the map is another has `rows` of its own.
    """
    return {"kind": "grid", "format": 1, "meta": meta, "map": {"rows": rows, "kinds": kinds}, "steps": steps}


def gridworld_episode(path: Path, run: str, order: str | None, member: int | None) -> dict[str, Any]:
    """The game of a training of a search on the gridworld; by default of the best one."""
    config = open_search(path).config()
    rows = [row for row in read_rows(path) if row["kind"] == ORDER]
    if order is not None:
        text = GRIDWORLD.text(GRIDWORLD.parse(order))
        rows = [row for row in rows if row["order"] == text]
    if member is not None:
        rows = [row for row in rows if int(row["number"]) == member]
    if not rows:
        raise ConfigError(f"{run} has no finished training with order {order!r} and number {member}")
    row = max(rows, key=lambda row: float(row["score"]))
    name = row["start"] if int(row["updates"]) == 0 else stored_as(int(row["number"]))
    try:
        kept = load_file(path / POLICIES / f"{name}.safetensors")
    except (OSError, SafetensorError) as error:
        raise RunError(f"{name} of {run} cannot be read ({type(error).__name__})") from None
    env: Any = make_environment(config, 1, stream="heldout")
    binding = config.workflow.binding["mask"]
    env.assign(slice(0, 1), order=GRIDWORLD.parse(row["order"]), seed=0, shown=True, mask=binding)
    spec = MlpSpec(env.buffers.observation.shape[1], env.buffers.action_mask.shape[1], config.ppo.hidden)
    if kept["weights"].shape != (spec.size,):
        raise RunError(f"{name} of {run} does not fit its settings; restore it")
    moments = [kept[f"observation_{part}"].numpy()[None] for part in ("count", "mean", "square")]
    shift, scale = scaling_from(*moments, normalise=config.ppo.normalise_observations)
    runner = PolicyRunner(spec, kept["weights"].numpy()[None], np.zeros((1, 0)), shift, scale)
    return _visits(env, runner, {"run": run, "order": row["order"], "member": int(row["number"])})


def _visits(env: Gridworld, runner: Any, meta: dict[str, Any]) -> dict[str, Any]:
    """Plays a gridworld: the goals are its map, the visited ones what its agent holds."""
    corners = {(0, 0): 0, (SIZE - 1, SIZE - 1): 1, (0, SIZE - 1): 2, (SIZE - 1, 0): 3}  # (row, column)
    rows = [[corners.get((r, c), -1) + 1 for c in range(SIZE)] for r in range(SIZE)]
    assert env.packed is not None
    frames, over = [_place(env.packed.observation[0, 0], 0.0, 0.0)], False
    while not over:
        actions = runner(env)
        buffers = env.step(actions)
        over = bool(buffers.terminated[0] or buffers.truncated[0])
        shown = (env.packed.final_observation if over else env.packed.observation)[0, 0]
        reward = float(buffers.reward[0])
        frames.append(_place(shown, reward, frames[-1]["total"][0] + reward) | {"action": actions.tolist()})
    meta |= {
        "title": f"training {meta['member']}", "game": "gridworld of the search", "horizon": len(frames) - 1,
        "actions": list(_MOVES), "resources": [f"visited {name}" for name in GRIDWORLD.names], "agents": 1,
    }  # fmt: skip
    return grid_data(meta, rows, list(GRIDWORLD.names), frames)


def _place(word: Any, reward: float, total: float) -> dict[str, Any]:
    """The agent, from the first word of its observation."""
    column, row, visited = int(word) & 15, int(word) >> 4 & 15, int(word) >> 8
    holds = [visited >> i & 1 for i in range(len(GRIDWORLD))]
    return {"at": [[row, column]], "reward": [round(reward, 3)], "total": [round(total, 3)], "holds": [holds]}
