"""A game of CAGE-2 as plain data: what the page, exported pages and recorded traces have in common.

`recorded` plays a game and describes it after reset and after each step: what both sides did, what it cost, what is
true of every host and what Blue's table says of it. Fields that are empty are left out of a host.
"""

import math
from collections.abc import Mapping
from typing import Any

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.belief import Belief
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.protocol import Actor
from cavalcade.envs.cage2.reward import PARTS
from cavalcade.envs.cage2.scenario import (
    ACTIONS,
    BLOCKS,
    COST_ONE_TENTH,
    COST_TEN_TENTHS,
    DECOY_PORT,
    DECOYS,
    EXPLOIT,
    EXPLOITS,
    FIRST_BLOCK,
    HOST_TYPES,
    HOSTS,
    LISTENING,
    NUM_DECOYS,
    NUM_HOSTS,
    OP_SERVER,
    OWN,
    PORTS,
    RED_ACTIONS,
    REDS,
    REVISIONS,
    SUBNET_OF,
    SUBNETS,
    SWEEP,
    TYPE_OF,
    UNKNOWN,
    USER0,
    VARIANTS,
)
from cavalcade.envs.cage2.text import host_views, red_name
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.targets.decision import decide

FORMAT = 1
PARTICLES = 256  # of Blue's belief
BEST = 5  # actions of a policy that are kept
_COST_OF_TYPE = {"user": "cost_user", "enterprise": "cost_enterprise", "op_host": "cost_op_host",
                 "op_server": "cost_op_server"}  # fmt: skip


def recorded(
    env: Cage2,
    actor: Actor,
    policy: MlpPolicy | None = None,
    *,
    edits: Mapping[int, int] | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Plays the first game of a batch, just begun, to its end.

    Args:
        env: with an end and without autoreset.
        actor: who defends.
        policy: of the actor, if its decisions shall be recorded.
        edits: actions that replace those of the actor, by the number of their step, from 1.
        about: what is known about the game besides the settings of `env`.
    """
    if not env.params.horizon:
        raise ConfigError("horizon is 0; a game to look at needs an end")
    edits = edits or {}
    state = policy.initial_state() if policy else None
    belief = None if (env.state.red_setting >= OWN).any() else Belief(env.clone([0]), PARTICLES)
    steps = [step_data(env)]
    for t in range(1, env.params.horizon + 1):
        found = decide(policy, env, state) if policy else None
        actions = actor(env)
        taken = edits.get(t, int(actions[0]))
        env.step([taken])
        step = step_data(env)
        if belief:
            belief.update([taken], env.words[:1, 0])
            step["belief"] = belief_data(belief)
        if found:
            step["policy"] = {
                "best": [[ACTIONS[action], round(p, 4)] for action, p in found.best(BEST)],
                "value": round(found.value, 3) if math.isfinite(found.value) else None,
            }
        steps.append(step)
    return game_data(env, steps, about={"edits": [[t, ACTIONS[a]] for t, a in sorted(edits.items())], **(about or {})})


def belief_data(belief: Belief) -> dict[str, Any]:
    """What Blue can conclude from all that it has seen: probabilities of the agents, and of Red's levels on hosts."""
    found = belief.marginals()
    levels = zip(found.user[0].tolist(), found.privileged[0].tolist(), strict=True)
    agents = {name: round(p, 2) for name, p in zip(REDS, found.agent[0].tolist(), strict=False) if p >= 0.005}
    return {"agent": agents, "hosts": [[round(user, 2), round(privileged, 2)] for user, privileged in levels]}


def game_data(env: Cage2, steps: list[dict[str, Any]], e: int = 0, *, about: Mapping[str, Any]) -> dict[str, Any]:
    """A game from its steps."""
    p = env.params
    meta = {
        "red": about.get("red") or red_name(env, e),
        "revision": REVISIONS[p.revision],
        "variant": VARIANTS[p.variant],
        "green": bool(p.green),
        "horizon": len(steps) - 1,
        **about,
    }
    return {"kind": "cage2", "format": FORMAT, "meta": meta, "hosts": host_facts(env), "steps": steps}


def host_facts(env: Cage2) -> list[dict[str, Any]]:
    """What never changes about the hosts."""
    return [
        {
            "name": name,
            "subnet": SUBNETS[SUBNET_OF[h]],
            "type": HOST_TYPES[TYPE_OF[h]],
            "ports": _ports(int(LISTENING[h])),
            "cost": host_cost(env, h),
        }
        for h, name in enumerate(HOSTS)
    ]


def host_cost(env: Cage2, h: int) -> float:
    """What a step costs while Red is privileged on a host."""
    p = env.params
    if h == USER0:
        return 0.0
    field = _COST_OF_TYPE.get(HOST_TYPES[TYPE_OF[h]])
    if p.weighted and field:
        return getattr(p, field) / 10
    return (int(COST_ONE_TENTH >> h & 1) + 10 * int(COST_TEN_TENTHS >> h & 1)) / 10


def step_data(env: Cage2, e: int = 0) -> dict[str, Any]:
    """The state of a game after its latest step, with what was done in it."""
    s = env.state
    step: dict[str, Any] = {
        "step": int(s.step[e]),
        "reward": round(float(env.reward_parts[e].sum()) / 10, 1),
        "total": round(int(s.total[e]) / 10, 1),
        "parts": {name: round(int(part) / 10, 1) for name, part in zip(PARTS, env.reward_parts[e], strict=True)},
        "service": _service(env, e),
        "hosts": [_host(env, e, h, view) for h, view in enumerate(host_views(env, e))],
    }
    if s.blue_action[e] >= 0:
        step |= {"blue": _blue(env, e), "red": _red(env, e)}
    if 0 <= s.green_target[e] < NUM_HOSTS:
        step["green"] = HOSTS[s.green_target[e]]
    return step


def _blue(env: Cage2, e: int) -> dict[str, Any]:
    s = env.state
    action = int(s.blue_action[e])
    found: dict[str, Any] = {"action": ACTIONS[action], "kind": ACTIONS[action], "success": _success(s.blue_success[e])}
    if action >= FIRST_BLOCK:
        block, host = divmod(action - FIRST_BLOCK, NUM_HOSTS)
        found |= {"kind": BLOCKS[block], "host": HOSTS[host]}
    return found


def _red(env: Cage2, e: int) -> dict[str, Any]:
    s = env.state
    action, target, exploit = int(s.red_action[e]), int(s.red_target[e]), int(s.red_exploit[e])
    found: dict[str, Any] = {"action": RED_ACTIONS[action], "success": _success(s.red_success[e])}
    if target >= 0:
        found |= {"subnet": SUBNETS[target]} if action == SWEEP else {"host": HOSTS[target]}
    if action == EXPLOIT and exploit >= 0:
        found["by"] = EXPLOITS[exploit]
    return found


def _success(code: Any) -> bool | None:
    return None if code == UNKNOWN else bool(code)


def _service(env: Cage2, e: int) -> str:
    """The operational service: runs, at risk (Red could stop it now) or down."""
    s = env.state
    if not s.ot_running[e]:
        return "down"
    return "at risk" if s.privileged[e] >> OP_SERVER & 1 and s.ot_stoppable[e] else "runs"


def _host(env: Cage2, e: int, h: int, view: Any) -> dict[str, Any]:
    """A host as it is, and as Blue's table shows it."""
    s = env.state
    kinds = [kind for kind in range(NUM_DECOYS) if s.decoys[NUM_DECOYS * e + kind] >> h & 1]
    opened = 0
    for kind in kinds:
        opened |= int(DECOY_PORT[kind])
    found = {
        "held": view.held,
        "removable": bool(s.flagged[e] >> h & 1),
        "malware": bool(s.malware[e] >> h & 1),
        "decoys": [DECOYS[kind] for kind in kinds],
        "opened": _ports(opened & ~int(LISTENING[h])),
        "known": "name" if s.hostnames[e] >> h & 1 else "address" if s.addresses[e] >> h & 1 else "",
        "scanned": bool(s.scanned[e] >> h & 1),
        "scanned_ports": _ports(int(s.ports[NUM_HOSTS * e + h])),
        "sees": view.activity,
        "believes": view.belief,
        "differs": difference(view.held, view.belief, h),
        "cost": host_cost(env, h) if view.held == "privileged" else 0,
    }
    return {name: value for name, value in found.items() if value}


def difference(held: str, believed: str, h: int) -> str:
    """How Blue's belief about a host differs from the truth. Red's foothold on User0 is known to everybody."""
    if h == USER0 or held == believed:
        return ""
    if believed == "unknown":
        return "unsure"
    if not believed:
        return "missed"
    if not held:
        return "false alarm"
    return "underrated" if held == "privileged" else "overrated"


def _ports(bits: int) -> list[int]:
    return [number for i, number in enumerate(PORTS) if bits >> i & 1]
