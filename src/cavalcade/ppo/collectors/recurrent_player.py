"""Plays fragments with a recurrent policy: in workers and Ray actors that have Cavalcade installed.

Besides what a perceptron's player records, a fragment has `value` (T + 1, n), `bootstrap` and `begins` (T, n), and
`state` (S, n, L·H), the recurrent states at the start of each segment of h steps, T = S·h.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.threads import use_threads
from cavalcade.policy.heads import head_from
from cavalcade.policy.recurrent import RecurrentNetwork, State, TokenPolicy
from cavalcade.policy.rows import RowPolicy
from cavalcade.policy.tokens import TokenLayout
from cavalcade.vector import player

_TOKENS = "layout"  # key of the layout of tokens


def described(network: RecurrentNetwork) -> dict[str, Any]:
    """The architecture as plain data, for `network_from`."""
    if not isinstance(network, TokenPolicy):
        return network.described()
    layout = network.layout
    names = ("height", "width", "features", "scales", "tags", "tokens")
    return network.described() | {_TOKENS: {name: getattr(layout, name) for name in names}}


def network_from(plain: Mapping[str, Any], deviations: int) -> RecurrentNetwork:
    """A network of that architecture."""
    if _TOKENS not in plain:
        return RowPolicy.from_description(dict(plain), deviations)
    given: Any = {name: tuple(x) if isinstance(x, list | tuple) else x for name, x in plain[_TOKENS].items()}
    shape = {name: plain[name] for name in ("encoder", "core", "width")}
    return TokenPolicy(TokenLayout(**given), plain["actions"], **shape)


def values_of(network: RecurrentNetwork) -> NDArray[np.float32]:
    """Parameters, and shift and scale of observations, in one row."""
    parts = [p.detach().flatten() for p in (*network.parameters(), *scaling_of(network))]
    return torch.cat([part.cpu().float() for part in parts]).numpy()


def scaling_of(network: RecurrentNetwork) -> tuple[Tensor, ...]:
    """Shift and scale of observations, if the network has them."""
    return tuple(x for name, x in network.named_buffers() if name in ("encoder.shift", "encoder.scale"))


class RecurrentActor:
    """A recurrent policy that acts for n environments.

    plain: network (see `described`), head and sizes, scaling of continuous actions, horizon: steps of a segment.
    """

    def __init__(self, plain: Mapping[str, Any]):
        use_threads(1)
        self.head, self.horizon = head_from(plain["head"], plain["sizes"]), int(plain["horizon"])
        self.network = network_from(plain["network"], self.head.deviations).eval()
        self.draws = self.head.draws
        self._scaling = [np.array(x, np.float32) for x in plain["scaling"]] if plain["scaling"] else None
        self._fixed = ExitStack()

    @torch.no_grad()
    def load(self, values: NDArray[np.float32]) -> None:
        """Reads parameters, shift and scale of observations from a row of numbers."""
        self._fixed.close()
        at, row = 0, torch.from_numpy(np.array(values))  # Ray's own cannot be written
        for p in (*self.network.parameters(), *scaling_of(self.network)):
            p.copy_(row[at : at + p.numel()].view_as(p))
            at += p.numel()
        self._fixed.enter_context(self.network.fixed())

    def noise(self, uniform: NDArray) -> NDArray:
        """Random numbers as heads take them."""
        return uniform

    @torch.no_grad()
    def outputs(self, observation: NDArray, state: State) -> tuple[Tensor, NDArray, State]:
        """Logits (n, A), values (n,) and the states after observations (n, O)."""
        shown = self.network.layout.cut(torch.from_numpy(observation)).unsqueeze(0)
        out, after = self.network(shown, state, np.zeros((1, len(observation)), np.bool_))
        return out.logits[0].float(), out.values[0].float().numpy(), after

    def act(self, logits: Tensor, mask: NDArray, noise: NDArray) -> tuple[NDArray, NDArray]:
        """Actions and their log-probabilities."""
        allowed = torch.from_numpy(mask)
        action = self.head.sample(logits, allowed, torch.from_numpy(noise))
        return action.numpy(), self.head.evaluate(logits, allowed, action)[0].numpy()

    def sent(self, action: NDArray) -> NDArray:
        """Actions as the environment takes them."""
        return action if self._scaling is None else player.scaled(action, self._scaling)


class Player(player.Player):
    """Steps environments with the actions of a recurrent policy; states are zero at the start of an episode."""

    policy: RecurrentActor

    def __init__(self, rows: Any, fields: Any, start: int, stop: int, policy: Mapping[str, Any], keys: Any):
        super().__init__(rows, fields, start, stop, policy, keys)
        self._state = self.policy.network.initial_state(stop - start)
        self.policy.outputs(self.mine["observation"], self._state)  # compiles kernels before the first fragment
        self._begins = np.zeros(stop - start, np.bool_)  # True where the next observation is the first of an episode

    def make_policy(self, plain: Mapping[str, Any]) -> RecurrentActor:
        return RecurrentActor(plain)

    def act(self, fragment: dict[str, NDArray], t: int, lost: bool) -> tuple[NDArray, NDArray]:
        """Also records value, state and where it was reset; a state that was lost with its worker begins from zero."""
        self._begins |= lost
        self._forget()
        segment, at = divmod(t, self.policy.horizon)
        fragment["begins"][t] = self._begins if at else False  # the state of a segment's start is already reset
        if at == 0 and self._state:
            fragment["state"][segment] = torch.cat([s[0] for s in self._state], -1).numpy()
        logits, fragment["value"][t], self._state = self.policy.outputs(fragment["observation"][t], self._state)
        return self.policy.act(logits, fragment["action_mask"][t], self.noise[t])

    def step(self, fragment: dict[str, NDArray], t: int, lost: bool = False) -> None:
        """Also records the values of final observations, and of the observations after the last step."""
        super().step(fragment, t, lost)
        late = fragment["truncated"][t] & ~fragment["terminated"][t]
        fragment["bootstrap"][t] = 0
        if late.any():
            state = tuple(s[:, torch.from_numpy(late)] for s in self._state)
            fragment["bootstrap"][t, late] = self.policy.outputs(fragment["final_observation"][t, late], state)[1]
        self._begins = fragment["truncated"][t] | fragment["terminated"][t]
        if t == len(fragment["reward"]) - 1:
            fragment["value"][t + 1] = self.policy.outputs(fragment["observation"][t + 1], self._state)[1]

    def _forget(self) -> None:
        """Sets states to zero where an episode begins."""
        if self._begins.any():
            keep = torch.from_numpy(~self._begins).unsqueeze(-1)
            self._state = tuple(s * keep for s in self._state)
