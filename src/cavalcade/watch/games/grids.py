"""Episodes on a grid as plain data: arenas of MettaGrid and the gridworld of the search."""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.gridworld import GRIDWORLD, SIZE, Gridworld
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.tables import AGENT, OUTSIDE
from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.runner import PolicyRunner
from cavalcade.ppo.state import scaling_from
from cavalcade.search.directory import open_search
from cavalcade.search.domains import make_environment
from cavalcade.search.members import ORDER, stored_as
from cavalcade.search.policies import POLICIES, read_rows
from cavalcade.targets.mettagrid.arenas import chosen
from cavalcade.targets.mettagrid.policy import RecurrentPolicy
from cavalcade.targets.mettagrid.scoring import random_actor
from cavalcade.vector.hosted import HELDOUT_SEEDS

MOST_STEPS = 2000
_MOVES = ("up", "down", "left", "right")


def grid_data(
    meta: dict[str, Any], rows: list[list[int]], kinds: list[str], steps: list[dict[str, Any]]
) -> dict[str, Any]:
    """An episode: the map as rows of numbers, 0 for nothing and k for kinds[k − 1], and the agents in each step."""
    return {"kind": "grid", "format": 1, "meta": meta, "map": {"rows": rows, "kinds": kinds}, "steps": steps}


def arena_episode(policy: RecurrentPolicy | None, run: str, seed: int, steps: int, task: Any = None) -> dict[str, Any]:
    """An episode of MettaGrid in the compiled simulator, on a held-out map; without a policy agents act at random."""
    if not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"horizon is {steps}; it must be from 1 to {MOST_STEPS:,}")
    if policy is not None and not isinstance(policy, RecurrentPolicy):
        raise ConfigError(f"{run} was not trained on mettagrid")
    task = policy.config.arena if policy else task
    game, why = chosen(task)
    if game is None:
        raise ConfigError(f"{why}; its episodes are recorded for MettaScope: cavalcade record RUN")
    actor: Any = policy.runner(seed=seed) if policy else random_actor(seed)
    env = Arenas(game, game.agents, seed=HELDOUT_SEEDS + seed)
    env.reset()
    rows = _map_of(env)
    kinds = [kind.name for kind in game.kinds]
    names = ["noop", *(f"move {name}" for name in game.directions), *(f"vibe {i}" for i in range(game.vibes))]
    steps = min(steps, (game.max_steps or steps + 1) - 1)  # the last step begins the next episode
    frames = [_agents(env, game.resources)]
    for _ in range(steps):
        actions = np.asarray(actor(env))
        env.step(actions)
        frames.append(_agents(env, game.resources) | {"action": actions.tolist()})
    meta = {
        "title": f"{policy.label.name} at update {policy.update}" if policy else "random actions",
        "game": f"MettaGrid {task.task}", "run": run, "seed": seed, "horizon": len(frames) - 1,
        "actions": names, "resources": list(game.resources), "agents": game.agents,
    }  # fmt: skip
    return grid_data(meta, rows, kinds, frames)


def _map_of(env: Arenas) -> list[list[int]]:
    t = env.tables
    grid = env.state.grid[0].reshape(-1, t.stride)[t.margin : -t.margin, t.margin : -t.margin]
    return np.where(grid >= OUTSIDE, 0, grid).tolist()


def _agents(env: Arenas, resources: tuple[str, ...]) -> dict[str, Any]:
    """Rows and columns of the agents, their rewards in this step and so far, and what they hold."""
    s, t = env.state, env.tables
    row, column = np.divmod(s.place[0], t.stride)
    assert (s.grid[0][s.place[0]] >= AGENT).all()
    return {
        "at": np.stack([row - t.margin, column - t.margin], axis=1).tolist(),
        "reward": [round(float(x), 4) for x in env.buffers.reward],
        "total": [round(float(x), 3) for x in s.total[0]],
        "holds": s.inventory[0].tolist(),
    }


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
