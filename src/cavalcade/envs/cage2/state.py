"""The state of a batch of games, as a structure of arrays: entry e of each array belongs to environment e.

Sets of hosts are 13-bit masks. Numbers of sessions and of equal decoys never change what happens, so a session of each
kind on a host is one bit, and so is each kind of decoy. All integers are signed except random keys: mixing signed and
unsigned would turn into floating point.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cavalcade.core.errors import StateError
from cavalcade.envs.cage2.rng import SCRIPT_SIZE
from cavalcade.envs.cage2.scenario import (
    NUM_ACTIONS,
    NUM_BITS,
    NUM_DECOYS,
    NUM_EXPLOITS,
    NUM_HOSTS,
    PORTS,
    RED_ACTIONS,
)


class State(NamedTuple):
    """The complete state of a game, one entry per environment (with a width > 1: that many entries per row)."""

    # Where the game stands.
    key: np.ndarray  # uint64: this environment's random key
    episode: np.ndarray  # int32: episodes begun before this one
    step: np.ndarray  # int32: steps taken in this episode
    total: np.ndarray  # int32: reward so far in this episode, in tenths
    red_setting: np.ndarray  # int8: configured agent, may be MIXED
    red: np.ndarray  # int8: agent of this episode

    # The true state of the network.
    user: np.ndarray  # int16, hosts: Red has a user-level session that Remove cannot kill
    flagged: np.ndarray  # int16, hosts: Red has a user-level session that Remove would kill
    privileged: np.ndarray  # int16, hosts: Red is root or SYSTEM
    malware: np.ndarray  # int16, hosts: Analyse would find files
    mail_fixed: np.ndarray  # int16, hosts: mail server no longer exploitable (leaderboard-2022)
    decoys: np.ndarray  # int16 × 8, hosts: where a decoy of each kind runs
    ot_running: np.ndarray  # int8: the operational service runs
    ot_stoppable: np.ndarray  # int8: Impact would stop it

    # What Red knows.
    red_success: np.ndarray  # int8: outcome of Red's latest action
    addresses: np.ndarray  # int16, hosts: known by address
    hostnames: np.ndarray  # int16, hosts: known by name
    subnets: np.ndarray  # int8, subnets known
    scanned: np.ndarray  # int16, hosts with remembered ports
    ports: np.ndarray  # int16 × 13, ports: remembered for each host
    ot_known: np.ndarray  # int8: Red has found the operational service

    # B_line's plan.
    line_state: np.ndarray  # int8: 0 … 14, the step of the plan last issued
    line_target: np.ndarray  # int8: the user host it goes through, −1 not drawn yet
    line_at_server: np.ndarray  # int8: the exploit of the Op_Server has been issued once
    scan_empty: np.ndarray  # int8: the latest scan came back empty

    # Meander's lists.
    meander_swept: np.ndarray  # int8, subnets
    meander_scanned: np.ndarray  # int16, hosts
    meander_exploited: np.ndarray  # int16, hosts
    meander_escalated: np.ndarray  # int16, hosts
    meander_owned: np.ndarray  # int16, hosts whose exploit ever succeeded
    meander_last_exploit: np.ndarray  # int8: host, −1 none
    meander_last_host: np.ndarray  # int8: host last escalated or impacted, −1 none

    # What Blue knows.
    table: np.ndarray  # int64: the observation, bit i = value i
    seen_scanned: np.ndarray  # int16, hosts ever seen scanned in this episode
    seen_latest: np.ndarray  # int16, hosts seen scanned in the latest step with a scan

    # What was done in the latest step.
    blue_action: np.ndarray  # int16
    blue_success: np.ndarray  # int8
    green_target: np.ndarray  # int8: host scanned by Green, −1 none
    red_action: np.ndarray  # int8
    red_target: np.ndarray  # int8: host, or subnet of a sweep, −1 none
    red_exploit: np.ndarray  # int8: −1 none

    # Replay of recorded games: empty otherwise.
    script: np.ndarray  # int8 × SCRIPT_SIZE: outcomes of the draws of the next step
    asked: np.ndarray  # int32: purposes for which the step drew, as bits


_DTYPES = {
    "key": np.uint64, "episode": np.int32, "step": np.int32, "total": np.int32, "table": np.int64, "asked": np.int32,
    **dict.fromkeys(
        ("red_setting", "red", "ot_running", "ot_stoppable", "red_success", "subnets", "ot_known", "line_state",
         "line_target", "line_at_server", "scan_empty", "meander_swept", "meander_last_exploit", "meander_last_host",
         "blue_success", "green_target", "red_action", "red_target", "red_exploit", "script"),
        np.int8,
    ),
}  # fmt: skip
WIDTHS = {"decoys": NUM_DECOYS, "ports": NUM_HOSTS, "script": SCRIPT_SIZE}
REPLAY_FIELDS = ("script", "asked")
GAME_FIELDS = tuple(name for name in State._fields if name not in REPLAY_FIELDS)


def dtype_of(field: str) -> np.dtype:
    """The dtype of a field; int16, a set of hosts, unless stated otherwise."""
    return np.dtype(_DTYPES.get(field, np.int16))


def allocate(num_envs: int, *, scripted: bool = False) -> State:
    """An all-zero state; `reset` begins its games."""
    return State(
        *(
            np.zeros(0 if name in REPLAY_FIELDS and not scripted else num_envs * WIDTHS.get(name, 1), dtype_of(name))
            for name in State._fields
        )
    )


def bytes_per_environment() -> int:
    """Bytes of one game."""
    return sum(dtype_of(name).itemsize * WIDTHS.get(name, 1) for name in GAME_FIELDS)


# Ranges that the compiled rules rely on, beyond host sets of 13 bits: values that index tables or have a meaning.
_RANGES = {
    "episode": (0, 2**31 - 1), "step": (0, 2**31 - 1), "total": (-(2**31), 2**31 - 1), "key": (0, 2**64 - 1),
    "red_setting": (0, 127), "red": (0, 127), "red_success": (0, 2), "blue_success": (0, 2),
    "ot_running": (0, 1), "ot_stoppable": (0, 1), "ot_known": (0, 1), "subnets": (0, 7), "meander_swept": (0, 7),
    "ports": (0, 2 ** len(PORTS) - 1), "line_state": (0, 14), "line_target": (-1, NUM_HOSTS - 1),
    "line_at_server": (0, 1), "scan_empty": (0, 1), "meander_last_exploit": (-1, NUM_HOSTS - 1),
    "meander_last_host": (-1, NUM_HOSTS - 1), "table": (0, 2**NUM_BITS - 1), "blue_action": (-1, NUM_ACTIONS - 1),
    "green_target": (-1, NUM_HOSTS - 1), "red_action": (0, len(RED_ACTIONS) - 1), "red_target": (-1, NUM_HOSTS - 1),
    "red_exploit": (-1, NUM_EXPLOITS - 1),
}  # fmt: skip
_HOST_SET = (0, 2**NUM_HOSTS - 1)


def check_saved(saved: Mapping[str, np.ndarray], num_envs: int) -> None:
    """Raises `StateError` unless this is a saved state of that many environments."""
    if missing := [name for name in GAME_FIELDS if name not in saved]:
        raise StateError(f"the saved state lacks {', '.join(missing)}; it must come from save_state of this version")
    for name in GAME_FIELDS:
        array = np.asarray(saved[name])
        shape = (num_envs, WIDTHS[name]) if name in WIDTHS else (num_envs,)
        if array.shape != shape or array.dtype != dtype_of(name):
            raise StateError(
                f"{name} of the saved state is {array.dtype} {array.shape}; here it must be {dtype_of(name)} {shape}"
            )
        low, high = _RANGES.get(name, _HOST_SET)
        if array.size and not low <= array.min() <= array.max() <= high:
            raise StateError(
                f"{name} of the saved state goes from {array.min()} to {array.max()}; allowed is {low} to {high}"
            )


def host_bits(sets: np.ndarray) -> np.ndarray:
    """Sets of hosts as booleans: one more axis of 13."""
    return (np.asarray(sets)[..., None] >> np.arange(NUM_HOSTS) & 1).astype(np.bool_)
