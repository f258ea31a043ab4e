"""What another action would have been worth: both futures of a step, and the mean of many continuations of each.

From the state before the step, the game is continued many times with the action that was played and as often with the
other one; the policy acts from then on. Continuation i of either side has the same fresh draws, so that the difference
of both sides is estimated with common random numbers.
"""

import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError
from cavalcade.core.statistics import half_interval
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.protocol import Actor
from cavalcade.envs.cage2.scenario import ACTIONS
from cavalcade.watch.games.choice import Choice
from cavalcade.watch.games.defender import Defender

CONTINUATIONS = 1000
MOST_CONTINUATIONS = 10_000
_FRESH = 1 << 40  # indices of games that nothing else plays


class Branching(NamedTuple):
    """A game just before a step of Blue."""

    env: Cage2
    past: list[int]  # the actions before the step
    taken: int  # the action that was played


def branch(
    defender: Defender, choice: Choice, number: int, step: int, action: int, continuations: int = CONTINUATIONS
) -> dict[str, Any]:
    """Both futures of a step as plain data; number: index of the game, step: from 1, action: the other one."""
    if not 2 <= continuations <= MOST_CONTINUATIONS:
        raise ConfigError(f"continuations is {continuations}; it must be from 2 to {MOST_CONTINUATIONS:,}")
    began = time.perf_counter()
    at = before(defender, choice, number, step)
    horizon = at.env.params.horizon
    actor = defender.fast_actor() if not defender.draws else None
    sides = {}
    for name, first in (("taken", at.taken), ("other", action)):
        mine = defender.fast_actor() if actor is None or defender.remembers else actor
        sides[name] = (first, continued(defender, choice, number, at, first, mine, continuations))
    seconds = time.perf_counter() - began
    difference = sides["other"][1] - sides["taken"][1]
    return {
        "step": step,
        "steps_left": horizon - step + 1,
        "continuations": continuations,
        "seconds": round(seconds, 4),
        **{name: {"action": ACTIONS[first], **_summary(returns)} for name, (first, returns) in sides.items()},
        "difference": _summary(difference),
    }


def before(defender: Defender, choice: Choice, number: int, step: int) -> Branching:
    """Plays a game up to a step."""
    env, actor, edits = defender.game(choice, first=number), defender.make(), dict(choice.edits)
    if not 1 <= step <= env.params.horizon:
        raise ConfigError(f"step is {step}; the game has steps 1 to {env.params.horizon}")
    env.reset()
    past: list[int] = []
    for t in range(1, step + 1):
        chosen = edits.get(t, int(actor(env)[0]))
        if t == step:
            return Branching(env, past, chosen)
        env.step([chosen])
        past.append(chosen)
    raise AssertionError("unreachable")


def continued(
    defender: Defender, choice: Choice, number: int, at: Branching, action: int, actor: Actor, continuations: int
) -> NDArray[np.float64]:
    """Rewards from the step on, (continuations,)."""
    rows = np.zeros(continuations, np.int64)
    if defender.remembers:  # the past is played again, so that the actor remembers it
        first = defender.game(choice, first=number)
        first.reset()
        env = first.clone(rows)
        for chosen in at.past:
            actor(env)
            env.step(np.full(continuations, chosen))
        actor(env)
    else:
        env = at.env.clone(rows)
    env.state.key[:] = defender.game(choice, continuations, first=_FRESH).state.key
    before = env.state.total.copy()
    env.step(np.full(continuations, action))
    while not env.buffers.truncated[0]:
        env.step(actor(env))
    return (env.state.total - before) / 10


def _summary(values: NDArray[np.float64]) -> dict[str, float]:
    return {"mean": float(values.mean()), "interval": half_interval(values)}
