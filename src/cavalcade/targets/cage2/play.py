"""A game of CAGE-2 in the terminal, step by step."""

import sys
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cavalcade.core.errors import ActionError, ConfigError, at_least
from cavalcade.envs.cage2 import Cage2
from cavalcade.envs.cage2.scenario import ACTIONS, NUM_ACTIONS
from cavalcade.envs.cage2.scripted import BLUES
from cavalcade.envs.cage2.text import blue_line, game_lines, green_line, host_views, red_line, red_name, service_line

_COLOURS = {"exploit": "bold red", "scan": "yellow", "privileged": "bold red", "user": "red", "unknown": "yellow"}


@dataclass(frozen=True)
class Options:
    """Shows a game of CAGE-2: actions of Blue and Red, what Blue observes, what Red holds, and the reward so far.

    `cavalcade play mettagrid` shows MettaGrid.
    """

    blue: Literal["random", "sleep", "react", "human"] = "random"
    """Defender. react repairs hosts that look compromised; human lets you type the actions."""
    red: str = "bline"
    """Attacker: bline, meander, sleep, mixed (one of the three), or module:function for a Red of your own."""
    revision: Literal["head", "leaderboard-2022"] = "head"
    """Revision of CybORG: the newest, or that of the 2022 leaderboard."""
    variant: Literal["challenge", "workflow"] = "challenge"
    """Blue's table as in the official wrapper (challenge) or in the CAGE-2 workflow-search scripts (workflow)."""
    green: bool = False
    """Whether Green scans ports."""
    horizon: int = 100
    """Steps per game."""
    seed: int = 0
    """Seed of the game and of a random Blue."""
    delay: float = 0.3
    """Seconds between steps on a terminal."""


def play(options: Options) -> None:
    at_least("horizon", options.horizon, 1)
    if options.delay < 0:
        raise ConfigError(f"delay is {options.delay}; it must be at least 0 seconds")
    env = Cage2(
        1,
        red=options.red,
        revision=options.revision,
        variant=options.variant,
        green=options.green,
        horizon=options.horizon,
        seed=options.seed,
        autoreset=False,
    )
    env.reset()
    env.clone().step([0])  # compiles
    rng = np.random.default_rng(options.seed)
    if options.blue == "human":
        _play_human(env)
    elif sys.stdout.isatty():
        with Live(_picture(env), console=Console(), auto_refresh=False) as live:
            while not env.buffers.truncated[0]:
                env.step(BLUES[options.blue](env, rng))
                live.update(_picture(env), refresh=True)
                time.sleep(options.delay)
    else:
        print("\n".join(game_lines(env)))
        while not env.buffers.truncated[0]:
            env.step(BLUES[options.blue](env, rng))
            print("\n".join(game_lines(env)))
    print(f"{options.blue} against {red_name(env)}: {env.state.step[0]} steps, return {env.state.total[0] / 10:.1f}")


def _play_human(env: Cage2) -> None:
    """Prompts for an action each step; an empty line sleeps, `?` lists the actions, `q` or end of input stops."""
    print("Type an action by number or by name (restore user1); Enter sleeps, ? lists the actions, q ends the game.")
    while not env.buffers.truncated[0]:
        print("\n".join(game_lines(env)))
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
            env.step([action_from(typed)])
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


def _picture(env: Cage2) -> Group:
    table = Table(box=None, pad_edge=False)
    for title in ("host", "Blue sees", "believes", "Red holds", "decoys"):
        table.add_column(title)
    for view in host_views(env):
        table.add_row(view.name, *(Text(cell, style=_COLOURS.get(cell, "")) for cell in view[1:4]), view.decoys)
    lines = [
        f"step {env.state.step[0]}   reward {env.buffers.reward[0]:.1f}   so far {env.state.total[0] / 10:.1f}",
        f"operational service {service_line(env)}",
        f"Blue   {blue_line(env)}",
        f"Red    {red_line(env)}",
    ]
    if env.params.green:
        lines.append(f"Green  {green_line(env)}")
    return Group(*lines, table)
