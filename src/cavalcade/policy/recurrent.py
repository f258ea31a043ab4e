"""Recurrent policies: an encoder, an optional LSTM or GRU core, an actor and a critic.

Time comes first: (h, b, …) are h steps of b agents. A state is a tuple of tensors (L, b, H), empty without a core. It
is reset to zero where an episode begins; between resets, torch's recurrent kernels run over whole sequences.
"""

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cavalcade.core.jit import config
from cavalcade.policy.compiled.function import CompiledNetwork, Parameters
from cavalcade.policy.encoders import ENCODERS, BagEncoder
from cavalcade.policy.tokens import TokenLayout

State = tuple[Tensor, ...]
LossGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # by logits (h, b, A) and values (h, b)
Core = Literal["none", "lstm", "gru"]
_CORES = {"lstm": nn.LSTM, "gru": nn.GRU}
_LOOKED_UP = ("table", "embedding", "query")  # parameters that are matrices but not used in a matrix product


class Output(NamedTuple):
    """Outputs of a forward pass."""

    logits: Tensor  # (h, b, A)
    values: Tensor  # (h, b)
    features: Tensor  # (h, b, H): inputs of actor and critic


class ObservationLayout(Protocol):
    """How observations of an environment are shown to a policy and stored."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        ...

    @property
    def dtype(self) -> torch.dtype: ...

    def cut(self, rows: Tensor) -> Tensor:
        """Rows of an environment's buffers, (n, O), as observations (n, *shape)."""
        ...


class RecurrentNetwork(nn.Module):
    """Actor and critic on the features of an encoder, (h, b, …) → (h, b, H), with a recurrent core or without."""

    layout: ObservationLayout
    direct = False
    """Whether `backpropagate` is supported."""

    def __init__(self, encoder: nn.Module, actions: int, core: Core, width: int, deviations: int = 0):
        super().__init__()
        self.actions, self.width, self._core = actions, width, core
        self.encoder = encoder
        self.core = _CORES[core](width, width) if core in _CORES else None
        self.actor = nn.Linear(width, actions)
        self.critic = nn.Linear(width, 1)
        self.log_deviation = nn.Parameter(torch.zeros(deviations)) if deviations else None  # of continuous actions
        self._states = {"none": 0, "gru": 1, "lstm": 2}[core]
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "embedding" not in name and "table" not in name:
                gain = 0.01 if name.startswith("actor") else 1.0 if name.startswith(("critic", "core")) else 2**0.5
                nn.init.orthogonal_(parameter, gain)
            elif name.endswith("bias") or "bias_" in name:
                nn.init.zeros_(parameter)

    @property
    def forward_operations(self) -> int:
        """Floating-point operations of matrix products in a forward pass over one observation, for the encoder `bag`.

        Sums of embeddings are not counted. For other encoders this is a lower bound: convolutions are not counted, and
        layers applied to each token count once.
        """
        weights = ((name, p) for name, p in self.named_parameters() if p.dim() == 2)
        return sum(2 * p.numel() for name, p in weights if not any(word in name for word in _LOOKED_UP))

    def initial_state(self, agents: int) -> State:
        """The zero state at the beginning of an episode."""
        device = self.actor.weight.device
        return tuple(torch.zeros(1, agents, self.width, device=device) for _ in range(self._states))

    def described(self) -> dict[str, Any]:
        """The architecture as plain data, for a checkpoint."""
        return {"core": self._core, "width": self.width, "actions": self.actions}

    def fixed(self) -> AbstractContextManager[None]:
        """Within it, parameters do not change."""
        return nullcontext()

    def backpropagate(
        self, observation: Tensor, index: Tensor, state: State, begins: NDArray[np.bool_], loss: LossGradient
    ) -> None:
        """Adds the gradient of a loss over segments `index` (b,) of observations (S, h, …), without torch's graph."""
        raise NotImplementedError

    def compile(self, *, mode: str) -> None:
        """Compiles torch's forward pass by torch.compile, in place; names of parameters stay.

        Sums of embeddings and sequences of the core are left out: their kernels are compiled already, and torch.compile
        cannot look into them.
        """
        bag = getattr(self.encoder, "bag", None)
        if bag is not None:
            bag.forward = torch.compiler.disable(bag.forward)
        self._remember = torch.compiler.disable(self._remember)  # pyright: ignore[reportAttributeAccessIssue]
        warnings.filterwarnings("ignore", r"The \.grad attribute", UserWarning)  # torch.compile reads it of all inputs
        super().compile(mode=mode)

    def forward(self, observation: Tensor, state: State, begins: NDArray[np.bool_]) -> tuple[Output, State]:
        """Outputs for observations (h, b, …) from a state; begins: (h, b), where an episode begins, on the host."""
        x = self.encoder(observation)
        if self.core is not None:
            x, state = self._remember(x, state, begins)
        x = x.float()
        logits = self.actor(x)
        if self.log_deviation is not None:
            logits = torch.cat([logits, self.log_deviation.expand(*logits.shape[:2], -1)], -1)
        return Output(logits, self.critic(x).squeeze(-1), x), state

    def _remember(self, x: Tensor, state: State, begins: NDArray[np.bool_]) -> tuple[Tensor, State]:
        """Runs the core over the sequences between resets, cut where any episode begins."""
        assert self.core is not None
        cuts = [int(t) for t in np.flatnonzero(begins.any(1))]
        parts = []
        for start, stop in stretches(cuts, len(x)):
            if start in cuts:
                keep = torch.from_numpy(~begins[start]).to(x.device, non_blocking=True).unsqueeze(-1)
                state = tuple(s * keep for s in state)
            with torch.autocast(x.device.type, enabled=x.device.type == "cpu" and torch.is_autocast_enabled("cpu")):
                # full precision on a GPU: under autocast, cuDNN's cores are in half precision, whatever is requested
                given = x[start:stop].float() if x.is_cuda else x[start:stop]
                if x.is_cuda and len(x) == 1 and not torch.is_grad_enabled():
                    seen, state = self._one_step(given, state)
                else:
                    seen, after = self.core(given, state if self._states == 2 else state[0])
                    state = after if self._states == 2 else (after,)
            parts.append(seen)
        return parts[0] if len(parts) == 1 else torch.cat(parts), state

    def _one_step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """A single step of the core, (1, b, H); cuDNN's kernels for sequences take a hundred times as long for it."""
        c: Any = self.core
        weights = (c.weight_ih_l0, c.weight_hh_l0, c.bias_ih_l0, c.bias_hh_l0)
        if self._states == 2:
            after = torch.lstm_cell(x[0], tuple(s[0] for s in state), *weights)
        else:
            after = (torch.gru_cell(x[0], state[0][0], *weights),)
        return after[0].unsqueeze(0), tuple(s.unsqueeze(0) for s in after)


class TokenPolicy(RecurrentNetwork):
    """A recurrent policy on tokens, (h, b, K, 3)."""

    layout: TokenLayout

    def __init__(
        self, layout: TokenLayout, actions: int, *, encoder: str = "bag", core: Core = "lstm", width: int = 128
    ):
        super().__init__(ENCODERS[encoder](layout, width), actions, core, width)
        self.layout, self._encoder = layout, encoder
        self.compiled = encoder == "bag" and not config.DISABLE_JIT
        """Whether passes on the CPU in single precision are those of `policy.compiled`, else torch's modules."""
        self._passes = CompiledNetwork(layout, core, width, actions)

    def forward(self, observation: Tensor, state: State, begins: NDArray[np.bool_]) -> tuple[Output, State]:
        """As `RecurrentNetwork.forward`; compiled where that is supported."""
        if observation.device.type != "cpu" or not self.direct:
            return super().forward(observation, state, begins)
        logits, values, features, after = self._passes(observation, state, begins, self._compiled_parameters())
        return Output(logits, values, features), after

    @property
    def direct(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        whole = isinstance(self.encoder, BagEncoder)  # not wrapped by torch.compile
        on_cpu = self.actor.weight.device.type == "cpu"
        return whole and on_cpu and self.compiled and not torch.is_autocast_enabled("cpu")

    def backpropagate(
        self, observation: Tensor, index: Tensor, state: State, begins: NDArray[np.bool_], loss: LossGradient
    ) -> None:
        parameters = self._compiled_parameters()
        found = self._passes.gradients(observation, index, state, begins, parameters, loss)
        for p, gradient in zip(parameters, found, strict=True):
            if len(p):
                p.grad = gradient if p.grad is None else p.grad + gradient

    def _compiled_parameters(self) -> Parameters:
        none, c, e = self.actor.weight.new_empty(0), self.core, cast(BagEncoder, self.encoder)
        core = (none,) * 4 if c is None else (c.weight_ih_l0, c.weight_hh_l0, c.bias_ih_l0, c.bias_hh_l0)
        heads = (self.actor.weight, self.actor.bias, self.critic.weight, self.critic.bias)
        encoding = (e.bag.table, e.bag.bias, e.layer.weight, e.layer.bias)
        return Parameters(*encoding, *heads, *core)  # pyright: ignore[reportArgumentType]

    def fixed(self) -> AbstractContextManager[None]:
        return self._passes.fixed()

    def compile(self, *, mode: str) -> None:
        self.compiled = False
        super().compile(mode=mode)

    def described(self) -> dict[str, Any]:
        known = {"features": list(self.layout.features), "tags": self.layout.tags, "tokens": self.layout.tokens}
        return {"encoder": self._encoder, **super().described(), **known}


N = TypeVar("N", bound=RecurrentNetwork)


def seeded(seed: int, make: Callable[[], N]) -> N:
    """A network whose initial weights depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def stretches(cuts: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Splits 0 … length − 1 at cuts into (start, stop)."""
    starts = [0, *(t for t in cuts if t)]
    return list(zip(starts, [*starts[1:], length], strict=True))
