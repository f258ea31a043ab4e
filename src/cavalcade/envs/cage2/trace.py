"""Recorded episodes of the original, and their verification: the game is replayed with every recorded outcome forced.

A file (NumPy archive, described in docs/trace-format.md) holds Blue's actions, the outcome of each random draw, and the
results: Red's action, both observation variants, the reward and the true state. A replay is exact only if it reproduces
all of them and makes exactly the recorded draws. Counts of equal sessions and decoys are compared as booleans, since
their number never matters; everything else is compared exactly.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.archives import DAMAGED, read_arrays
from cavalcade.core.errors import TraceError, one_of
from cavalcade.envs.cage2 import cpu, rng
from cavalcade.envs.cage2.env import Cage2
from cavalcade.envs.cage2.own_red import MEMORY, knowledge
from cavalcade.envs.cage2.scenario import (
    B_LINE,
    DECOY_PORT,
    DECOYS,
    DETECTION_CHANCE,
    EXPLOIT,
    HOSTS,
    LISTENING,
    MIXED,
    NUM_ACTIONS,
    NUM_BITS,
    OWN,
    PORTS,
    RED_ACTIONS,
    REDS,
    REVISIONS,
    SUBNETS,
    TOP_EXPLOIT_CHANCE,
    TRUE,
    VARIANTS,
)
from cavalcade.envs.cage2.state import allocate, host_bits

SHIPPED = Path(__file__).with_name("recorded")  # a part of tests/data/cage2 that comes with the package
# What Red chose, in files of the random Red: where it is not what happened, the original made it an InvalidAction.
TRIED_FIELDS = ("red_tried_type", "red_tried_target")
# Recorded fields: axes after [episode, step]. State fields have one entry more than steps: index 0 is after reset.
RECORDED_REDS = (*REDS[:MIXED], "random")
STEP_FIELDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        ("blue_action", "blue_success", "green_type", "green_target", "red_type", "red_target", "red_success",
         "red_exploit", "reward", "done", "d_bline_target", "d_exploit_other", "d_exploit_nother", "d_exploit_u",
         "d_detect_u", "d_esc_idx"),
        (),
    ),
    "d_meander_addr_perm": (13,), "d_meander_host_perm": (13,),
}  # fmt: skip
STATE_FIELDS: dict[str, tuple[int, ...]] = {
    "obs": (NUM_BITS,), "obs2": (NUM_BITS,), "s_decoys": (13, 8), "s_ports_open": (13, 12), "s_red_ports": (13, 12),
    **dict.fromkeys(
        ("s_n_user", "s_n_priv", "s_n_sus", "s_access", "s_first_priv", "s_malware", "s_os_known", "s_smtp_dead",
         "s_red_knows_ip", "s_red_knows_host", "s_red_scanned", "s_me_scanned_ip", "s_me_exploited", "s_me_escalated"),
        (13,),
    ),
    **dict.fromkeys(("s_red_knows_subnet", "s_me_scanned_subnet"), (3,)),
    **dict.fromkeys(("s_ot_running", "s_ot_stoppable", "s_ot_known", "s_bline_state"), ()),
}  # fmt: skip
# Compared: all of the above except Blue's actions and the forced outcomes; of the latter `draws`, the purposes for
# which the game drew.
COMPARED = (
    "red_type", "red_target", "red_success", "red_exploit", "blue_success", "reward", "done", "draws",
    "d_exploit_nother", *STATE_FIELDS,
)  # fmt: skip
# Inputs of a replay, checked before it starts.
_FORCED_RANGES = {
    "blue_action": (0, NUM_ACTIONS - 1), "green_type": (0, 1), "green_target": (-1, 12), "d_bline_target": (-1, 12),
    "d_exploit_other": (-1, 7), "d_meander_addr_perm": (-1, 12), "d_meander_host_perm": (-1, 12),
}  # fmt: skip
_TRIED_RANGES = {"red_tried_type": (0, len(RED_ACTIONS) - 1), "red_tried_target": (-1, 12)}
_COUNTS = ("s_n_user", "s_n_priv", "s_n_sus", "s_decoys", "s_ports_open")
_AXIS_NAMES = {13: HOSTS, 3: SUBNETS, 8: DECOYS, 12: PORTS}


@dataclass(frozen=True)
class Trace:
    """Recorded episodes: E of T steps."""

    path: Path
    revision: str
    red: str
    green: bool
    episodes: int
    steps: int
    fields: dict[str, NDArray]


class Difference(NamedTuple):
    """The first place where the game differs from the recorded one."""

    path: Path
    variant: str
    episode: int
    step: int  # −1: right after reset
    field: str
    expected: str
    got: str

    def __str__(self) -> str:
        when = "after reset" if self.step < 0 else f"step {self.step}"
        return (
            f"{self.path}: episode {self.episode}, {when}, {self.field} ({self.variant} variant): "
            f"expected {self.expected}, got {self.got}"
        )


def load_trace(path: str | Path) -> Trace:
    """Reads and checks a file of recorded episodes; nothing in it is executed."""
    path = Path(path)
    try:
        fields = read_arrays(path)
        meta = json.loads(str(fields["meta"]))
        episodes, steps = int(meta["episodes"]), int(meta["steps"])
        revision, red, green = str(meta["revision"]), str(meta["red"]), meta["green"] == "green"
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except DAMAGED as error:
        raise TraceError(
            f"{path}: not a complete file of recorded episodes ({type(error).__name__} in reading it)"
        ) from None
    try:
        one_of("its revision", revision, REVISIONS)
        one_of("its red agent", red, RECORDED_REDS)
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None
    tried = dict.fromkeys(TRIED_FIELDS, ()) if red == "random" else {}
    for name, axes in (STEP_FIELDS | STATE_FIELDS | tried).items():
        shape = (episodes, steps + (name in STATE_FIELDS), *axes)
        if name not in fields:
            raise TraceError(f"{path}: the field {name} is missing; recorded by another version?")
        if fields[name].shape != shape or fields[name].dtype.kind not in "iuf":
            raise TraceError(
                f"{path}: {name} is {fields[name].dtype} {fields[name].shape}; {episodes} episodes of {steps} steps "
                f"need numbers of shape {shape}"
            )
    for name, values in fields.items():  # also draws that only some versions record
        if name.startswith("d_") and values.shape[:2] != (episodes, steps):
            raise TraceError(f"{path}: {name} is {values.shape}; {episodes} episodes of {steps} steps need that shape")
    for name, (low, high) in (_FORCED_RANGES | (_TRIED_RANGES if tried else {})).items():
        values = fields[name]
        if values.size and not low <= values.min() <= values.max() <= high:
            wrong = values[(values < low) | (values > high)][0]
            raise TraceError(f"{path}: {name} has {wrong}; allowed is {low} to {high}")
    return Trace(path, revision, red, green, episodes, steps, fields)


def replay(trace: Trace, kind: type[Cage2] = Cage2) -> Iterator[Difference]:
    """Replays a file in both observation variants; yields the first difference of each, if any."""
    for variant in VARIANTS:
        difference = _compare(trace, variant, _history(trace, variant, kind))
        if difference:
            yield difference


def _scripts(trace: Trace) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """The outcomes to force, (T, E, purpose, 13), and the purposes for which the original drew, (E, T), as bits."""
    f, shape = trace.fields, (trace.episodes, trace.steps)
    script = np.full((*shape, len(rng.PURPOSES), rng.SCRIPT_WIDTH), rng.NOT_SCRIPTED, np.int8)
    drawn = np.zeros(shape, np.int32)

    def force(purpose: int, when: NDArray, outcome: NDArray) -> None:
        outcome = outcome.reshape(*shape, -1)
        script[:, :, purpose, : outcome.shape[-1]] = np.where(when[..., None], outcome, rng.NOT_SCRIPTED)
        drawn[when] |= 1 << purpose

    always = np.ones(shape, np.bool_)
    force(rng.GREEN_ACTS, always & trace.green, f["green_type"])
    force(rng.GREEN_HOST, f["green_type"] == 1, f["green_target"])
    force(rng.LINE_TARGET, f["d_bline_target"] >= 0, f["d_bline_target"])
    force(rng.ADDRESS, f["d_meander_addr_perm"][..., 0] >= 0, f["d_meander_addr_perm"])
    force(rng.HOSTNAME, f["d_meander_host_perm"][..., 0] >= 0, f["d_meander_host_perm"])
    force(rng.OTHER_EXPLOIT, f["d_exploit_other"] >= 0, f["d_exploit_other"])
    force(rng.TOP_EXPLOIT, ~np.isnan(f["d_exploit_u"]), f["d_exploit_u"] < TOP_EXPLOIT_CHANCE)
    force(rng.DETECTION, ~np.isnan(f["d_detect_u"]), f["d_detect_u"] < DETECTION_CHANCE)
    force(rng.SESSION, f["d_esc_idx"] >= 0, np.broadcast_to([0, 1], (*shape, 2)))
    return script.swapaxes(0, 1), drawn


def played(trace: Trace, variant: str, kind: type[Cage2] = Cage2) -> Iterator[Cage2]:
    """Plays the recorded actions with the recorded outcomes; yields the batch after reset and after each step."""
    env = kind(trace.episodes, revision=trace.revision, variant=variant, green=trace.green, horizon=0, threads=1)
    env.state = allocate(trace.episodes, scripted=True)
    env.state.red_setting[:] = OWN if trace.red == "random" else REDS.index(trace.red)
    tried = [trace.fields[name] for name in TRIED_FIELDS] if trace.red == "random" else None
    script, _ = _scripts(trace)
    env.reset()
    yield env
    no_memory = np.zeros((0, MEMORY), np.int64)
    for t in range(trace.steps):
        env.state.script[:] = script[t].ravel()
        env.state.asked[:] = 0
        if tried:
            chosen = (np.ascontiguousarray(field[:, t], np.int64) for field in tried)
            cpu.give_red_actions(knowledge(env.state, no_memory), env._everywhere, *chosen)
        env.step(trace.fields["blue_action"][:, t])
        yield env


def _history(trace: Trace, variant: str, kind: type[Cage2]) -> dict[str, NDArray]:
    """Every field of the state, and the reward, after reset and each step of a replay."""
    history: dict[str, NDArray] = {}
    for t, env in enumerate(played(trace, variant, kind)):
        fields = {name: field for name, field in env.state._asdict().items() if name != "script"}
        for name, field in (fields | {"reward": env.reward_parts.sum(axis=1)}).items():
            if t == 0:
                history[name] = np.empty((trace.episodes, trace.steps + 1, field.size // trace.episodes), field.dtype)
            history[name][:, t] = field.reshape(trace.episodes, -1)
    return {name: kept[..., 0] if kept.shape[2] == 1 else kept for name, kept in history.items()}


def _played_fields(trace: Trace, variant: str, h: dict[str, NDArray]) -> dict[str, NDArray]:
    """The history of a replay in the form of the recorded fields."""
    decoys = host_bits(h["decoys"]).swapaxes(2, 3)  # (E, T + 1, 13, 8)
    decoy_ports = np.bitwise_or.reduce(decoys * DECOY_PORT, axis=-1)
    broken_in = (h["red_action"] == EXPLOIT) & (h["red_success"] == TRUE)
    known = np.zeros((*broken_in.shape, len(HOSTS)), np.bool_)
    np.put_along_axis(known, np.maximum(h["red_target"], 0)[..., None].astype(np.int64), broken_in[..., None], axis=-1)
    privileged, user = host_bits(h["privileged"]), host_bits(h["user"] | h["flagged"])
    bits = h["table"][..., None] >> np.arange(NUM_BITS) & 1
    steps = np.s_[:, 1:]
    return {
        "red_type": h["red_action"][steps],
        "red_target": h["red_target"][steps],
        "red_success": h["red_success"][steps],
        "red_exploit": h["red_exploit"][steps],
        "blue_success": h["blue_success"][steps],
        "reward": h["reward"][steps],
        "done": np.zeros((trace.episodes, trace.steps), np.int64),
        "draws": h["asked"][steps] & rng.OTHER_COUNT - 1,
        "d_exploit_nother": h["asked"][steps] // rng.OTHER_COUNT,
        "obs" if variant == "challenge" else "obs2": bits,
        "s_n_user": user,
        "s_n_priv": privileged,
        "s_n_sus": host_bits(h["flagged"]),
        "s_access": np.where(privileged, 2, user.astype(np.int64)),
        "s_first_priv": privileged,
        "s_malware": host_bits(h["malware"]),
        "s_os_known": np.logical_or.accumulate(known, axis=1),
        "s_smtp_dead": host_bits(h["mail_fixed"]),
        "s_red_knows_ip": host_bits(h["addresses"]),
        "s_red_knows_host": host_bits(h["hostnames"]),
        "s_red_knows_subnet": _bits(h["subnets"], 3),
        "s_decoys": decoys,
        "s_ports_open": _bits(decoy_ports | LISTENING, len(PORTS)),
        "s_red_ports": _bits(h["ports"], len(PORTS)),
        "s_red_scanned": host_bits(h["scanned"]),
        "s_ot_running": h["ot_running"],
        "s_ot_stoppable": h["ot_stoppable"],
        "s_ot_known": h["ot_known"],
        "s_bline_state": np.where(h["red"] == B_LINE, h["line_state"], -1),
        "s_me_scanned_ip": host_bits(h["meander_scanned"]),
        "s_me_exploited": host_bits(h["meander_exploited"]),
        "s_me_escalated": host_bits(h["meander_escalated"]),
        "s_me_scanned_subnet": _bits(h["meander_swept"], 3),
    }


def _recorded_fields(trace: Trace) -> dict[str, NDArray]:
    """The recorded fields in the form in which they are compared."""
    fields = {name: trace.fields[name] for name in COMPARED if name in trace.fields}
    fields.update({name: trace.fields[name] > 0 for name in _COUNTS})
    fields["reward"] = np.rint(10 * trace.fields["reward"]).astype(np.int64)
    fields["draws"] = _scripts(trace)[1]
    return fields


def _undetermined(trace: Trace) -> dict[str, NDArray[np.bool_]]:
    """Where fields depend on the number or the age of sessions on a host, which the game here does not keep.

    Neither has an effect: a session beside a privileged one changes nothing until a Restore ends both.
    """
    f = trace.fields
    privileged, user = f["s_n_priv"] > 0, f["s_n_user"] > 0
    one_of_several = np.zeros(privileged.shape, np.bool_)  # escalated since the host was last not privileged
    for t in range(trace.steps):
        escalated = f["d_esc_n"][:, t, None] > 1 if "d_esc_n" in f else np.zeros((trace.episodes, 1), np.bool_)
        here = escalated & (f["red_target"][:, t, None] == np.arange(len(HOSTS)))
        one_of_several[:, t + 1] = (one_of_several[:, t] | here) & privileged[:, t + 1]
    return {"s_n_user": one_of_several, "s_n_sus": one_of_several, "s_first_priv": privileged & user}


def _bits(values: NDArray, n: int) -> NDArray:
    return values[..., None] >> np.arange(n) & 1


def _compare(trace: Trace, variant: str, history: dict[str, NDArray]) -> Difference | None:
    """The earliest difference of the first episode that has one."""
    recorded, undetermined, first = _recorded_fields(trace), _undetermined(trace), None
    for name, got in _played_fields(trace, variant, history).items():
        where = np.argwhere((recorded[name] != got) & ~undetermined.get(name, np.False_))
        if not len(where):
            continue
        episode, index, *rest = where[0]
        step = int(index) - (name in STATE_FIELDS)
        if first is None or (episode, step) < (first.episode, first.step):
            at = (episode, index, *rest)
            label = "".join(f"[{_AXIS_NAMES.get(n, range(n))[i]}]" for n, i in zip(got.shape[2:], rest, strict=True))
            expected, found = (_words(name, array[at]) for array in (recorded[name], got))
            first = Difference(trace.path, variant, int(episode), step, name + label, expected, found)
    return first


def _words(name: str, value) -> str:
    """A value of a field as text: names where a number says nothing."""
    if name == "draws":
        asked = [purpose for i, purpose in enumerate(rng.PURPOSES) if value >> i & 1]
        wrong = [purpose for i, purpose in enumerate(rng.PURPOSES) if value >> len(rng.PURPOSES) + i & 1]
        return f"draws for {', '.join(asked) or 'nothing'}" + (f" (impossible: {', '.join(wrong)})" if wrong else "")
    if name == "reward":
        return f"{value / 10:.1f}"
    if name == "red_type":
        return RED_ACTIONS[value]
    return str(int(value))
