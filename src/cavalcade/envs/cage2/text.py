"""One game as text: the actions, Blue's view, the true state."""

from typing import NamedTuple

from cavalcade.envs.cage2.belief import Belief
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.scenario import (
    ACTIONS,
    DECOYS,
    EXPLOIT,
    EXPLOITS,
    FALSE,
    HOSTS,
    NUM_DECOYS,
    NUM_HOSTS,
    RED_ACTIONS,
    REDS,
    SUBNETS,
    SWEEP,
    USER0,
)

ACTIVITIES = ("", "scan", "", "exploit")
BELIEFS = ("", "unknown", "user", "privileged")
_LIKELY = 0.02  # probability from which it is said


class HostView(NamedTuple):
    """A host in Blue's view and in the true state."""

    name: str
    activity: str
    belief: str
    held: str
    decoys: str


def host_views(env: Cage2, e: int = 0) -> list[HostView]:
    s, views = env.state, []
    for h, name in enumerate(HOSTS):
        bits = int(s.table[e]) >> 4 * h
        held = "privileged" if s.privileged[e] >> h & 1 else "user" if (s.user[e] | s.flagged[e]) >> h & 1 else ""
        kinds = [DECOYS[k] for k in range(NUM_DECOYS) if s.decoys[NUM_DECOYS * e + k] >> h & 1]
        views.append(HostView(name, ACTIVITIES[bits & 0b11], BELIEFS[bits >> 2 & 0b11], held, ", ".join(kinds)))
    return views


def blue_line(env: Cage2, e: int = 0) -> str:
    """Blue's action of the latest step."""
    action = int(env.state.blue_action[e])
    if action < 0:
        return "-"
    return ACTIONS[action] + (" (failed)" if env.state.blue_success[e] == FALSE else "")


def red_line(env: Cage2, e: int = 0) -> str:
    """Red's action of the latest step."""
    s = env.state
    action, target, exploit = int(s.red_action[e]), int(s.red_target[e]), int(s.red_exploit[e])
    if target < 0:
        return RED_ACTIONS[action]
    name = SUBNETS[target] if action == SWEEP else HOSTS[target]
    by = f" by {EXPLOITS[exploit]}" if action == EXPLOIT and exploit >= 0 else ""
    return f"{RED_ACTIONS[action]} {name}{by}" + (" (failed)" if s.red_success[e] == FALSE else "")


def green_line(env: Cage2, e: int = 0) -> str:
    """Green's action of the latest step."""
    target = int(env.state.green_target[e])
    return f"scans {HOSTS[target]}" if 0 <= target < NUM_HOSTS else "sleeps"


def service_line(env: Cage2, e: int = 0) -> str:
    """The state of the operational service."""
    return "runs" if env.state.ot_running[e] else "is DOWN: -10 a step"


def red_name(env: Cage2, e: int = 0) -> str:
    """The Red agent of this episode."""
    return env.episode_kind_names[env.state.red[e]]


def belief_line(belief: Belief, e: int = 0) -> str:
    """What Blue can conclude from all that it has seen: who attacks, and the hosts that Red may hold."""
    found = belief.marginals()
    parts = [f"{REDS[i]} {p:.0%}" for i, p in enumerate(found.agent[e]) if p >= _LIKELY]
    for host, name in enumerate(HOSTS):
        if host != USER0:
            chances = (("user", found.user[e, host]), ("privileged", found.privileged[e, host]))
            parts += [f"{name} {level} {p:.0%}" for level, p in chances if p >= _LIKELY]
    return ", ".join(parts)


def game_lines(env: Cage2, e: int = 0, *, secrets: bool = True, why: str = "", belief: str = "") -> list[str]:
    """The whole game as plain text: the actions, then a table of the hosts.

    secrets: show what Blue cannot know: actions of Red and Green, and what Red holds. why: a remark on Blue's action;
    belief: see `belief_line`.
    """
    s = env.state
    lines = [
        f"step {s.step[e]}  reward {env.buffers.reward[e]:.1f}  so far {s.total[e] / 10:.1f}  "
        f"operational service {service_line(env, e)}",
        f"  Blue  {blue_line(env, e)}",
    ]
    if why:
        lines.append(f"        {why}")
    if secrets:
        lines.append(f"  Red   {red_line(env, e)}")
    if secrets and env.params.green:
        lines.append(f"  Green {green_line(env, e)}")
    if belief:
        lines.append(f"  belief: {belief}")
    held = f"{'Red holds':<12}" * secrets
    lines.append(f"  {'host':<12}{'Blue sees':<10}{'believes':<12}{held}decoys")
    for v in host_views(env, e):
        held = f"{v.held:<12}" * secrets
        lines.append(f"  {v.name:<12}{v.activity:<10}{v.belief:<12}{held}{v.decoys}".rstrip())
    return lines
