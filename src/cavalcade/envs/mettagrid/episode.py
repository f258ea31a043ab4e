"""A single arena to look at: stepped interactively, recorded for MettaScope, drawn as text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import ArrayLike, NDArray

from cavalcade.core.contract import Buffers, Environment, EnvSpec, SavedState
from cavalcade.core.errors import StateError
from cavalcade.envs.mettagrid.seeds import episode_seeds
from cavalcade.envs.mettagrid.shown import LETTERS, letter


class Episode(Environment):
    """The agents of one arena as a batch, for a single episode of MettaGrid's `Simulation`.

    It is the first episode of arena `index` of a hosted batch with this seed.
    """

    resumable = False

    def __init__(self, config: Any, seed: int, *, index: int = 0, handlers: tuple[Any, ...] = ()):
        from mettagrid.simulator import Simulation
        from mettagrid.simulator.simulator import Buffers as MettagridBuffers

        config = config.model_copy(deep=True)
        map_seed, own = episode_seeds(seed, index, 1)
        if "seed" in type(config.game.map_builder).model_fields:
            config.game.map_builder.seed = map_seed
        game, n = config.game, config.game.num_agents
        actions = len(game.actions.actions())
        tokens = np.zeros((n, game.obs.num_tokens, 3), np.uint8)
        self._memory = MettagridBuffers(
            observations=tokens,
            terminals=np.zeros(n, np.bool_),
            truncations=np.zeros(n, np.bool_),
            rewards=np.zeros(n, np.float32),
            masks=np.ones(n, np.bool_),
            actions=np.zeros(n, np.int32),
            teacher_actions=np.zeros(n, np.int32),
            vibe_actions=np.zeros(n, np.int32),
        )
        self.simulation = Simulation(config, seed=own, buffers=self._memory, event_handlers=handlers)
        flat = tokens.reshape(n, -1)
        self.spec = EnvSpec("mettagrid", n, Box(0, 255, flat.shape[1:], np.uint8), Discrete(actions))
        never = np.zeros(n, np.bool_)
        self.buffers = Buffers(flat, self._memory.rewards, never, never, flat, np.ones((n, actions), np.bool_))
        self.total = np.zeros(n)

    @property
    def current_step(self) -> int:
        return self.simulation.current_step

    @property
    def over(self) -> bool:
        return self.simulation.is_done()

    def send(self, actions: ArrayLike) -> None:
        """Steps the arena."""
        if self.over:
            raise StateError("the episode is over; make another")
        self._memory.actions[:] = np.asarray(actions)
        self.simulation.step()
        self.total += self._memory.rewards

    def recv(self) -> Buffers:
        return self.buffers

    def reset(self, **_: Any) -> Buffers:
        raise StateError("an episode cannot be reset; make another")

    def save_state(self, indices: ArrayLike | None = None) -> SavedState:
        raise StateError("episodes of MettaGrid cannot be saved")

    def load_state(self, saved: SavedState, indices: ArrayLike | None = None) -> None:
        raise StateError("episodes of MettaGrid cannot be saved")

    def clone(self, indices: ArrayLike | None = None) -> "Episode":
        raise StateError("episodes of MettaGrid cannot be cloned")

    def picture(self) -> str:
        """The map as text: # walls, @ agents, other objects by their first letter."""
        s = self.simulation
        grid = [[LETTERS["empty"]] * s.map_width for _ in range(s.map_height)]
        for thing in s.grid_objects().values():
            grid[thing["r"]][thing["c"]] = letter(thing["type_name"].split(".")[0])
        return "\n".join("".join(row) for row in grid)

    def held(self) -> dict[str, int]:
        """The resources that all agents hold together, by name."""
        s = self.simulation
        found = dict.fromkeys(s.resource_names, 0)
        for thing in s.grid_objects().values():
            if "agent_id" in thing:
                for item, count in thing["inventory"].items():
                    found[s.resource_names[item]] += count
        return found


def record_episode(
    config: Any, seed: int, actor: Callable[[Environment], NDArray], path: Path, steps: int = 0, *, index: int = 0
) -> float:
    """Plays an episode and writes a MettaScope recording; returns the mean return of its agents.

    steps: length of the recording, 0 for the whole episode.
    """
    from mettagrid.simulator.replay_log_writer import InMemoryReplayWriter

    writer = InMemoryReplayWriter()
    episode = Episode(config, seed, index=index, handlers=(writer,))
    while not episode.over and not (steps and episode.current_step >= steps):
        episode.step(actor(episode))
    if not episode.over:
        episode.simulation.end_episode()
        writer.on_episode_end()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".writing-{path.name}")
    writer.get_completed_replays()[-1].write_replay(str(aside))
    aside.replace(path)
    return float(episode.total.mean())
