"""A game of CAGE-2 in the terminal, step by step: a trained policy, a scripted Blue or a person defends."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cavalcade.config.base import Settings, whole
from cavalcade.core.errors import ActionError, ConfigError, at_least
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.belief import Belief
from cavalcade.envs.cage2.protocol import Actor
from cavalcade.envs.cage2.scenario import ACTIONS, NUM_ACTIONS
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.cage2.text import (
    belief_line,
    blue_line,
    game_lines,
    green_line,
    host_views,
    red_line,
    red_name,
    service_line,
)
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.base import LoadPolicy
from cavalcade.targets.cage2.evaluation import chosen, task_of
from cavalcade.targets.decision import explain

_COLOURS = {"exploit": "bold red", "scan": "yellow", "privileged": "bold red", "user": "red", "unknown": "yellow"}

Blue = Callable[[Cage2], tuple[NDArray, str]]  # actions, and why


class Match(NamedTuple):
    """A game that has begun, and who defends."""

    env: Cage2
    actor: Actor | None  # None: a person
    policy: MlpPolicy | None  # whose decisions can be explained
    blue: str  # a short name
    label: str  # a full one


@dataclass(frozen=True)
class Options(Settings):
    """Shows a game of CAGE-2: actions of Blue and Red, what Blue observes, what Red holds, and the reward so far.

    `cavalcade play RUN` shows a trained policy, with its three best actions and its value in each step; RUN is a run, a
    checkpoint or a search of any target. `cavalcade play mettagrid` shows MettaGrid.
    """

    run: Path | None = None
    """Run, checkpoint or search whose policy defends; the same as `cavalcade play RUN`."""
    order: str | None = None
    """Of a search: order whose policy plays, by name or as types joined with >; by default the best."""
    member: int | None = None
    """Index of the policy in a run with several; by default the best one on validation games.
    Of a search: number of a training in search.csv."""
    sampled: bool = False
    """With a run: sample actions instead of acting greedily."""
    blue: Literal["random", "sleep", "react", "react-restore", "greedy", "greedy-corrected", "human"] | None = None
    """Without a run: defender, by default random. react repairs hosts that look compromised; human lets you type the
    actions, and shows what Blue can know."""
    show_red: bool = False
    """With --blue human: also show Red's and Green's actions, and the hosts that Red holds."""
    red: str | None = None
    """Attacker: bline, meander, sleep, mixed (one of the three), or module:function for a Red of your own. By default
    that of the run, else bline."""
    revision: Literal["head", "leaderboard-2022"] | None = None
    """Revision of CybORG: the newest, or that of the 2022 leaderboard. By default that of the run, else head."""
    variant: Literal["challenge", "workflow"] | None = None
    """Blue's table as in the official wrapper (challenge) or in the CAGE-2 workflow-search scripts (workflow). By
    default that of the run, else challenge."""
    green: bool = False
    """Whether Green scans ports; in the game of a run that was trained with Green it does anyway."""
    horizon: int | None = None
    """Steps per game; by default those of the run, else 100."""
    seed: int = whole(0, 0)
    """Seed of the game, and of a random Blue or sampled actions."""
    belief: int = whole(0, 0)
    """Show what Blue can conclude from all that it has seen, by so many particles, e.g. 256; 0 for not at all."""
    delay: float = 0.3
    """Seconds between steps on a terminal."""
    html: Path | None = None
    """Write the game to this file, a page that shows it step by step in a browser, instead of the terminal."""

    def __post_init__(self):
        super().__post_init__()
        if self.horizon is not None:
            at_least("horizon", self.horizon, 1)
        if self.delay < 0:
            raise ConfigError(f"delay is {self.delay}; it must be at least 0 seconds")
        if self.run and self.blue:
            raise ConfigError(f"blue is {self.blue} with the run {self.run}; its policy defends, leave one out")
        for name in ("order", "member", "sampled"):
            if not self.run and getattr(self, name) not in (None, False):
                raise ConfigError(f"{name} is {getattr(self, name)} without a run; name one: cavalcade play RUN")
        if self.html and self.blue == "human":
            raise ConfigError("html is given with --blue human; a page shows a game that is over, leave one out")
        if self.show_red and self.blue != "human":
            raise ConfigError("show_red is given without --blue human; otherwise Red is always shown, leave it out")


def play(options: Options, load: LoadPolicy) -> None:
    """Plays and shows one game."""
    match = prepare(options, load)
    env = match.env
    if options.run:
        print(match.label)
    belief = Belief(env, options.belief, seed=options.seed) if options.belief else None
    if match.actor is None:
        _play_human(env, options.show_red, belief)
    else:
        _show(env, _explained(match.actor, match.policy), options.delay, belief)
    print(f"{match.blue} against {red_name(env)}: {env.state.step[0]} steps, return {env.state.total[0] / 10:.1f}")


def prepare(options: Options, load: LoadPolicy) -> Match:
    """Loads the defender and begins the game."""
    shown: dict[str, Any] = {}
    if options.run:
        policies = load(str(options.run), order=options.order)
        if policies.path.is_file() and options.member is not None:  # of a search, the number of a training
            policies = load(str(options.run), order=options.order, member=options.member)
        task = task_of(policies)
        shown = {"red": task.red, "horizon": task.horizon, "stream": "heldout", **task.shown}
        shown["scenario"] = getattr(policies.config, "changes", None)
        member, label = chosen(policies, options.member, options.sampled)
        policy, blue = policies[member], "policy"
        actor = policy.runner(0, greedy=not options.sampled, seed=options.seed)
    else:
        policy, blue = None, options.blue or "random"
        actor, label = _scripted(blue, options.seed) if blue != "human" else None, blue
    given = {name: getattr(options, name) for name in ("red", "revision", "variant", "horizon")}
    shown |= {name: value for name, value in given.items() if value is not None}
    shown["green"] = options.green or shown.get("green", False)
    env = Cage2(1, **shown, seed=options.seed, autoreset=False)
    env.reset()
    env.clone().step([0])  # compiles
    return Match(env, actor, policy, blue, label)


def _scripted(name: str, seed: int) -> Actor:
    rng = np.random.default_rng(seed)
    return lambda env: BLUES[name](env, rng)


def _explained(actor: Actor, policy: MlpPolicy | None) -> Blue:
    state = policy.initial_state() if policy else None
    return lambda env: (actor(env), explain(policy, env, ACTIONS.__getitem__, state) if policy else "")


def _step(env: Cage2, actions: Any, belief: Belief | None) -> str:
    """Steps the game; returns what Blue then believes, if that is shown."""
    env.step(actions)
    if belief is None:
        return ""
    belief.update(actions, env.words[:, 0])
    return belief_line(belief)


def _show(env: Cage2, blue: Blue, delay: float, belief: Belief | None) -> None:
    """Plays a game: redrawn in place on a terminal, else as text."""
    if sys.stdout.isatty():
        with Live(_picture(env, ""), console=Console(), auto_refresh=False) as live:
            while not env.buffers.truncated[0]:
                actions, why = blue(env)
                live.update(_picture(env, why, _step(env, actions, belief)), refresh=True)
                time.sleep(delay)
        return
    print("\n".join(game_lines(env)))
    while not env.buffers.truncated[0]:
        actions, why = blue(env)
        said = _step(env, actions, belief)
        print("\n".join(game_lines(env, why=why, belief=said)))


def _play_human(env: Cage2, show_red: bool, belief: Belief | None) -> None:
    """Prompts for an action each step; an empty line sleeps, `?` lists the actions, `q` or end of input stops."""
    print("Type an action by number or by name (restore user1); Enter sleeps, ? lists the actions, q ends the game.")
    said = ""
    while not env.buffers.truncated[0]:
        print("\n".join(game_lines(env, secrets=show_red, belief=said)))
        try:
            typed = input("Blue> ").strip()
        except EOFError:
            return
        if typed == "q":
            return
        if typed == "?":
            print("\n".join(f"{i:>4} {name}" for i, name in enumerate(ACTIONS)))
            continue
        try:
            said = _step(env, [action_from(typed)], belief)
        except ActionError as error:
            print(error)


def action_from(typed: str) -> int:
    """Index of an action given by number or name; case and spaces are ignored."""
    if not typed:
        return 0
    if typed.isdecimal() and int(typed) < NUM_ACTIONS:
        return int(typed)
    names = [name.lower().replace(" ", "") for name in ACTIONS]
    wanted = typed.lower().replace(" ", "")
    if wanted not in names:
        raise ActionError(
            f"{typed!r} is not an action; type a number from 0 to {NUM_ACTIONS - 1} or a name, ? lists them"
        )
    return names.index(wanted)


def _picture(env: Cage2, why: str, belief: str = "") -> Group:
    table = Table(box=None, pad_edge=False)
    for title in ("host", "Blue sees", "believes", "Red holds", "decoys"):
        table.add_column(title)
    for view in host_views(env):
        table.add_row(view.name, *(Text(cell, style=_COLOURS.get(cell, "")) for cell in view[1:4]), view.decoys)
    lines = [
        f"step {env.state.step[0]}   reward {env.buffers.reward[0]:.1f}   so far {env.state.total[0] / 10:.1f}",
        f"operational service {service_line(env)}",
        f"Blue   {blue_line(env)}",
        *([f"       {why}"] if why else []),
        *([f"belief {belief}"] if belief else []),
        f"Red    {red_line(env)}",
    ]
    if env.params.green:
        lines.append(f"Green  {green_line(env)}")
    return Group(*map(Text, lines), table)
