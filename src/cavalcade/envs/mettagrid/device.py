"""Arenas that stay on one device: a GPU, or the CPU with the same code.

Kernels step; the host knows when episodes end, since all are equally long, and prepares the maps of the next ones
while the device works. Nothing is copied back but on request.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.errors import ConfigError
from cavalcade.core.launch import Launcher
from cavalcade.envs.mettagrid.arenas import Arenas
from cavalcade.envs.mettagrid.maps import Opening
from cavalcade.envs.mettagrid.state import State

_NONE = 0xFFFFFF  # a token that is none
_ON_HOST = ("seed", "index", "episode")  # fields that no kernel changes


class DeviceArenas:
    """The arenas of a batch on a device. G = N · A agents, K tokens are kept of an observation.

    `launch` steps with `actions` and can be captured in a CUDA graph; `ended` and `begin` follow on the host.
    """

    def __init__(self, env: Arenas, tokens: int, device: torch.device):
        self.env, self.device = env, device
        self._run = Launcher(device)
        if self._run.on_gpu:
            from cavalcade.envs.mettagrid import kernels as made
        else:
            from cavalcade.envs.mettagrid import loops as made
        self._made: Any = made
        n, rows, game = env.arenas, env.spec.num_envs, env.game

        def zeros(*shape: int, of: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=of, device=device)

        self._words = torch.full((rows, tokens + 1), _NONE, dtype=torch.int32, device=device)
        bytes_ = self._words.view(torch.uint8).view(rows, tokens + 1, 4)
        self.tokens = bytes_[:, :tokens, :3]  # (G, K, 3): a view of the words
        self.seen = zeros(rows, of=torch.int32)  # tokens of the latest observations, kept or not
        self.reward = zeros(rows, of=torch.float32)
        self.actions = zeros(rows, of=torch.int32)
        self._visible = self._run.moved(np.zeros((*env.state.kinds.shape, env.tables.visible), np.uint32))
        self._visible_count = self._run.moved(np.zeros(env.state.kinds.shape, np.int32))
        self._tables = self._run.moved(env.tables)
        self._state: Any = None
        self._steps = np.zeros(n, np.int64)
        self._ready: dict[int, Opening] = {}  # maps of the next episodes by arena
        self._next = 0  # arena whose map is prepared next
        self._ahead = -(-n // max(game.max_steps, 1))  # maps to prepare per step
        self.push()

    def push(self) -> None:
        """Copies the arenas of the batch to new arrays on the device, and shows them if they have begun."""
        s = self.env.state
        if self._run.on_gpu:  # words of one place of all generators are neighbours, as threads read them
            s = s._replace(words=np.asfortranarray(s.words))
        self._state = self._run.moved(s)
        self._steps[:] = s.step
        self._ready.clear()
        if self.env.begun:
            self._show(paid=False)

    def pull(self) -> None:
        """Copies the arenas back into the batch."""
        for name in State._fields:
            if name not in _ON_HOST:
                mine, there = getattr(self.env.state, name), getattr(self._state, name)
                if mine is not there:
                    mine[...] = there.copy_to_host()

    def launch(self) -> None:
        """Steps every arena with `actions`."""
        self._run(self._made.act_arena, self.env.arenas, self._state, self._tables, self.actions)
        self._show(paid=True)

    def _show(self, *, paid: bool) -> None:
        rows, visible = self.env.spec.num_envs, (self._visible, self._visible_count)
        self._run(
            self._made.describe_holder, self._visible_count.size, self._state, self._tables, *visible, self.reward, paid
        )
        self._run(self._made.look_agent, rows, self._state, self._tables, *visible, self._words, self.seen)

    def ended(self) -> NDArray[np.int64]:
        """The arenas whose episode ended in the step just launched; prepares some maps."""
        self._steps += 1
        for _ in range(self._ahead):
            self._prepare(self._next)
            self._next = (self._next + 1) % self.env.arenas
        most = self.env.game.max_steps
        return np.flatnonzero(self._steps >= most) if most else np.zeros(0, np.int64)

    def rows(self, arenas: NDArray[np.int64]) -> Tensor:
        """The rows of the agents of arenas."""
        return torch.from_numpy(self.env.rows_of(arenas)).to(self.device)

    def begin(self, arenas: NDArray[np.int64]) -> None:
        """Begins the next episodes of arenas and shows all observations again."""
        for e in arenas:
            self._prepare(int(e))
        openings = (np.stack(part) for part in zip(*(self._ready.pop(int(e)) for e in arenas), strict=True))
        given = (self._run.moved(np.ascontiguousarray(x)) for x in (arenas, *openings))
        self._run(self._made.begin_arena, len(arenas), *given, self._state, self._tables)
        self.env.state.episode[arenas] += 1
        self._steps[arenas] = 0
        self._show(paid=False)

    def statistics(self, arenas: NDArray[np.int64]) -> NDArray[np.float64]:
        """Statistics of the episodes that ended, (rows, F)."""
        if not self.env.episode_stat_names:
            return np.zeros((len(arenas) * self.env.game.agents, 0))
        self.pull()
        return self.env.statistics_of(arenas)

    def check_room(self, most: int) -> None:
        """Raises `ConfigError` if an observation had more tokens than the game allows."""
        if most > self.env.game.tokens:
            raise ConfigError(
                f"an observation of {most} tokens does not fit into {self.env.game.tokens}; raise num_tokens"
            )

    def _prepare(self, e: int) -> None:
        if e not in self._ready:
            self._ready[e] = self.env.opening_of(e, int(self.env.state.episode[e]) + 1)
