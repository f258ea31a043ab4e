"""The game that `cavalcade play` would show, as plain data."""

from typing import Any

from cavalcade.envs.mettagrid.task import MettagridTask
from cavalcade.targets.base import LoadPolicy
from cavalcade.targets.cage2 import play as cage2
from cavalcade.targets.mettagrid import play as mettagrid
from cavalcade.watch.games.arenas import arena_episode
from cavalcade.watch.games.record import recorded


def played(options: cage2.Options | mettagrid.Options, load: LoadPolicy) -> dict[str, Any]:
    """Plays a game; options: of `cavalcade play`, load: loads the policy of a run."""
    if isinstance(options, mettagrid.Options):
        policy = load(str(options.run)) if options.run else None
        task = MettagridTask(options.task)
        return arena_episode(policy, str(options.run or ""), options.seed, options.steps, task)
    match = cage2.prepare(options, load)
    assert match.actor is not None, "a person does not play into a file"
    about = {"blue": match.label, "run": str(options.run or ""), "seed": options.seed, "sampled": options.sampled}
    return recorded(match.env, match.actor, match.policy, about=about)
