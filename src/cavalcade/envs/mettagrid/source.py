"""MettaGrid as a source of hosted environments: a row of the batch is an agent, arenas are never split."""

from collections.abc import Mapping, Sequence
from typing import Any

from cavalcade.envs.mettagrid.tasks import load_task
from cavalcade.vector.source import Shapes, Source, discrete_actions

_ROWS = "cavalcade.envs.mettagrid.rows"


def mettagrid_source(
    task: str = "forage", options: Mapping[str, Any] | None = None, *, stats: Sequence[str] = ()
) -> Source:
    """Arenas of a task; stats: names of MettaGrid statistics to report per agent and episode, e.g. ore.gained."""
    given = dict(options or {})
    game = load_task(task, given).game
    actions = discrete_actions(len(game.actions.actions()), "int32")
    shapes = Shapes(3 * game.obs.num_tokens, "uint8", actions, tuple(stats))
    made = {"task": task, "options": given, "stats": list(stats)}
    return Source(f"mettagrid {task}", shapes, _ROWS, made, agents=game.num_agents)
