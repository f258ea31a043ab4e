"""Recorded episodes of the mettagrid package, and their verification on machines without it.

A file (NumPy archive) holds the game, the seed, the map of each episode, the actions, and hashes of what the package
wrote: first observations of each episode; after each step observations, rewards, and everything else that is compared
(places, inventories, returns, statistics).
"""

import hashlib
import json
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.archives import DAMAGED, read_arrays
from cavalcade.core.errors import TraceError
from cavalcade.core.files import plain_json
from cavalcade.envs.mettagrid.arena import ComparedArena, DifferenceError, wild_actions
from cavalcade.envs.mettagrid.game import Game, RandomMap
from cavalcade.envs.mettagrid.maps import Maps, RecordedMaps
from cavalcade.envs.mettagrid.original import Original
from cavalcade.envs.mettagrid.plain import from_plain, to_plain
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.supported import VERSION, check_supported, game_from

SHIPPED = Path(__file__).with_name("recorded")
COMPARED = ("observations", "rewards", "places, inventories, returns or statistics")
_FORMAT = 1
_SHAPES = {"maps": 3, "actions": 2, "first": 1, "hashes": 2}  # axes


@dataclass(frozen=True)
class Trace:
    """Recorded episodes of one arena: E of them, T steps in all, A agents, maps of H × W cells."""

    game: Game  # its map is None if the package built it
    seed: int
    maps: NDArray[np.uint8]  # (E, H, W): cell codes
    actions: NDArray[np.int8]  # (T, A)
    first: NDArray[np.uint32]  # (E,): hashes of first observations
    hashes: NDArray[np.uint32]  # (T, 3), see COMPARED

    @property
    def agent_steps(self) -> int:
        return self.actions.size


def record(config: Any, steps: int, *, seed: int = 0, wild: float = 0.0) -> Trace:
    """Plays the package with random actions; needs it installed."""
    game, original = game_from(config), Original(config)
    maps, first, hashes, played = [], [], [], []
    builder, step = Maps(game), 0
    for actions in islice(wild_actions(seed, game.agents, game.actions, wild), steps):
        if step == 0:
            map_seed, own = episode_seeds(seed, 0, len(maps) + 1)
            original.begin(map_seed, own)
            maps.append(builder.build(map_seed))
            first.append(_hash(original.observation))
        original.step(actions)
        played.append(actions)
        hashes.append(_hashes(original.observation, original.reward, original.facts()))
        step = 0 if step + 1 == game.max_steps else step + 1
    kept = game if isinstance(game.map, RandomMap) else replace(game, map=None)
    arrays = np.stack(maps), np.array(played, np.int8), np.array(first, np.uint32), np.array(hashes, np.uint32)
    return Trace(kept, seed, *arrays)


def save_trace(path: Path, trace: Trace) -> None:
    """Writes a trace."""
    header = {"format": _FORMAT, "mettagrid": VERSION, "seed": trace.seed, "game": to_plain(trace.game)}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez_compressed(path, header=text, **{name: getattr(trace, name) for name in _SHAPES})


def load_trace(path: Path) -> Trace:
    """Reads a trace; raises `TraceError`."""
    try:
        found = read_arrays(path)
        header, arrays = plain_json(found["header"].tobytes().decode()), {name: found[name] for name in _SHAPES}
        if header["format"] != _FORMAT:
            raise TraceError(f"{path}: format {header['format']}; this version reads format {_FORMAT}")
        trace = Trace(from_plain(header["game"]), int(header["seed"]), **arrays)
        _check(trace)
        return trace
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except TraceError:
        raise
    except DAMAGED as error:
        words = " ".join(str(error).split())
        raise TraceError(f"{path}: not a recorded episode of MettaGrid, or damaged: {words}") from None


def _check(trace: Trace) -> None:
    """Raises `ValueError` if the parts do not fit."""
    check_supported(trace.game)
    for name, axes in _SHAPES.items():
        found = getattr(trace, name)
        if found.ndim != axes or found.dtype.kind not in "iu":
            raise ValueError(f"{name} is {found.dtype} {found.shape}")
    steps, agents = trace.actions.shape
    episodes = -(-steps // trace.game.max_steps) if trace.game.max_steps else 1
    lengths = len(trace.maps), len(trace.first), trace.hashes.shape, agents
    if lengths != (episodes, episodes, (steps, len(COMPARED)), trace.game.agents):
        raise ValueError(f"maps, first, hashes, agents are {lengths} for {steps} steps")


def replay(trace: Trace) -> None:
    """Plays a trace in the compiled simulator; raises `DifferenceError` at the first step that differs."""
    arena = _Replay(trace)
    for actions in trace.actions:
        arena.play(actions)


class _Replay(ComparedArena):
    """A compiled arena that is compared with recorded hashes."""

    def __init__(self, trace: Trace):
        self._trace, self._played = trace, 0
        seeds = [episode_seeds(trace.seed, 0, episode + 1)[0] for episode in range(len(trace.maps) + 1)]
        given = RecordedMaps(dict(zip(seeds, (*trace.maps, trace.maps[0]), strict=True)))  # the last is not played
        self._recorded = given
        super().__init__(trace.game if trace.game.map else replace(trace.game, map=given), trace.seed)
        self.reset()

    def check_first(self) -> None:
        episode = int(self.state.episode[0])
        if episode > len(self._trace.maps):
            return
        map_seed = self.seeds()[0]
        if not np.array_equal(self._maps.build(map_seed), self._recorded.codes[map_seed]):
            raise DifferenceError(f"the map of episode {episode}, seed {self._trace.seed} is another")
        if _hash(self.buffers.observation) != self._trace.first[episode - 1]:
            raise DifferenceError(f"observations differ, {self.where()}")

    def check_step(self, *, over: bool) -> None:
        mine = _hashes(self.buffers.observation, self.buffers.reward, self.facts())
        recorded = self._trace.hashes[self._played]
        self._played += 1
        for name, new, old in zip(COMPARED, mine, recorded, strict=True):
            if new != old:
                raise DifferenceError(f"{name} differ, {self.where()}")


def _hashes(observation: NDArray, reward: NDArray, facts: dict[str, NDArray[Any]]) -> tuple[int, ...]:
    every = b"".join(facts[name].astype(f"<{_WIDE[facts[name].dtype.kind]}").tobytes() for name in sorted(facts))
    return _hash(observation), _hash(reward), _hash(every)


_WIDE = {"i": "i4", "u": "u4", "f": "f4"}  # equal bytes whatever the types of the two simulators


def _hash(data: Any) -> int:
    raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    return int.from_bytes(hashlib.blake2b(raw, digest_size=4).digest(), "little")
