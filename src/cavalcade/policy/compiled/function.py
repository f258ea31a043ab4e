"""The compiled passes as one differentiable torch function of tokens, states and parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.policy.compiled.backward import (
    Deltas,
    Gradients,
    Transposed,
    Upstream,
    back_through_time,
    table_gradient,
    weight_gradients,
)
from cavalcade.policy.compiled.network import GRU, LSTM, NONE, Memory, Shape, Tokens, Weights, Work, forward
from cavalcade.policy.compiled.products import panels_of
from cavalcade.policy.compiled.vectors import LINE
from cavalcade.policy.tokens import TokenLayout

_TILE = 48  # agents, at most
_SINGLE = LINE // 4  # columns of a panel in float32, the wider one
_CORES = {"none": NONE, "lstm": LSTM, "gru": GRU}
_BLOCKS = {"none": (), "lstm": (0, 1, 2, 3), "gru": (2, 0, 1)}  # torch's blocks of gates in the order of `network`


class Parameters(NamedTuple):
    """Parameters as torch's modules keep them; the last four are empty without a core."""

    table: Tensor  # (R, H)
    sums_bias: Tensor
    layer: Tensor  # (H, H)
    layer_bias: Tensor
    actor: Tensor  # (A, H)
    actor_bias: Tensor
    critic: Tensor  # (1, H)
    critic_bias: Tensor
    inputs: Tensor  # (G·H, H): 4 blocks of an LSTM, 3 of a GRU
    states: Tensor
    inputs_bias: Tensor
    states_bias: Tensor


def _padded(x: Tensor, width: int) -> Tensor:
    """The last axis padded with zeros."""
    return F.pad(x, (0, width - x.shape[-1])) if width > x.shape[-1] else x


def _whole(size: int) -> int:
    """A number of columns rounded up to whole panels."""
    return -(-size // _SINGLE) * _SINGLE


@dataclass
class Workspaces:
    """Arrays of passes that are not under way, to be used again: fresh memory costs more than what is written to it."""

    free: list["Workspace"] = field(default_factory=list)

    def take(self, rows: int, kind: torch.dtype, make: Any) -> "Workspace":
        for i, one in enumerate(self.free):
            if one.rows >= rows and one.kind == kind:
                return self.free.pop(i)
        return make()

    def give_back(self, one: "Workspace") -> None:
        """Keeps it, and larger ones."""
        self.free = [*(other for other in self.free if other.rows > one.rows), one]

    def __deepcopy__(self, memo: Any) -> "Workspaces":
        return Workspaces()

    def __reduce__(self) -> Any:
        return Workspaces, ()


class Workspace(NamedTuple):
    """Arrays of a forward and a backward pass over a number of rows."""

    rows: int
    kind: torch.dtype
    work: Work
    deltas: Deltas


class CompiledNetwork:
    """The architecture of a token policy and the arrays its passes use."""

    def __init__(self, layout: TokenLayout, core: str, width: int, actions: int):
        self.core, self.inner, self.actions, self.tokens = core, width, actions, layout.tokens
        t = layout.tables
        self._rows = np.where(t.base < 0, -1, 256 * t.base + t.levels - 1).astype(np.int32)
        self._weight = t.weight
        self.width, self.outputs = _whole(width), _whole(actions + 1)
        self.blocks = _BLOCKS[core]
        self._acting, self._learning = Workspaces(), Workspaces()
        self._fixed = False
        self._packed: Weights | None = None  # those of fixed parameters

    @contextmanager
    def fixed(self) -> Iterator[None]:
        """Within it, parameters do not change: passes without gradients pack them once."""
        self._fixed = True
        try:
            yield
        finally:
            self._fixed, self._packed = False, None

    def __call__(
        self, tokens: Tensor, state: tuple[Tensor, ...], begins: NDArray[np.bool_], parameters: Parameters
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Logits (h, b, A), values (h, b), features (h, b, H), and the states after, (1, b, H) each."""
        if torch.is_grad_enabled():
            logits, values, features, *after = _Passes.apply(self, tokens, begins, len(state), *state, *parameters)  # pyright: ignore
        else:
            pass_ = self.forward(self._bytes(tokens), len(tokens), begins, state, parameters, learning=False)
            self._acting.give_back(pass_.space)
            logits, values, features, *after = pass_.outputs
        return logits, values, features, tuple(after)

    def gradients(
        self,
        observation: Tensor,
        index: Tensor,
        state: tuple[Tensor, ...],
        begins: NDArray[np.bool_],
        parameters: Parameters,
        loss: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    ) -> Parameters:
        """Gradients of a loss over segments `index` (b,) of observations (S, h, K, 3), without torch's graph.

        loss: takes logits (h, b, A) and values (h, b), returns its gradients with respect to them.
        """
        with torch.no_grad():
            seen, steps = self._picked(observation, index), observation.shape[1]
            pass_ = self.forward(seen, steps, begins, state, parameters, learning=True)
            upstream = (*loss(*pass_.outputs[:2]), None, *(None for _ in state))
            _, found = self.backward(pass_, parameters, upstream)
            self.release(pass_.space)
        return found

    def shape(self, steps: int, agents: int) -> Shape:
        threads = numba.get_num_threads()
        tiles = min(agents, -(-agents // (_TILE * threads)) * threads)
        used, core = len(self.blocks) * self.width, _CORES[self.core]
        sizes = (self.actions, self.inner, self.width, self.outputs)
        return Shape(steps, agents, *sizes, core, used, used, max(tiles, 1))

    def forward(
        self,
        seen: Tokens,
        steps: int,
        begins: NDArray[np.bool_],
        state: tuple[Tensor, ...],
        p: Parameters,
        *,
        learning: bool,
    ) -> "Pass":
        """The forward pass; its outputs are fresh tensors."""
        h, b = steps, len(seen.starts)
        shape, kind = self.shape(h, b), p.table.dtype
        pool = self._learning if learning else self._acting
        space = pool.take(h * b, kind, lambda: self._workspace(h * b, kind, learning))
        features = torch.empty(h * b, self.width, dtype=kind)
        logits, values = torch.empty(h * b, self.actions, dtype=kind), torch.empty(h * b, dtype=kind)
        before = [_padded(s[0].to(kind), self.width).contiguous() for s in state]
        after = [torch.empty_like(s) for s in before]
        none = torch.empty(0, 0, dtype=kind)
        memory = Memory(*(x.numpy() for x in (*_pair(before, none), *_pair(after, none))))
        matrices = self._matrices(p) if learning or not self._packed else None
        w = self._weights(p, matrices) if matrices else self._packed
        if self._fixed and not learning:
            self._packed = w
        begun = np.ascontiguousarray(np.broadcast_to(begins, (h, b)))  # kernels do not check bounds
        forward(shape, seen, begun, w, space.work, memory, features.numpy(), logits.numpy(), values.numpy())
        inner = self.inner
        shown = features.view(h, b, -1)[..., :inner]
        outputs = (logits.view(h, b, -1), values.view(h, b), shown, *(s[None, :, :inner] for s in after))
        return Pass(self, shape, space, begun, memory.cell, features.numpy(), matrices, outputs)

    def _bytes(self, tokens: Tensor) -> Tokens:
        """Tokens (h, b, K, 3) where they lie."""
        if tokens.stride()[2:] != (3, 1):
            tokens = tokens.contiguous()
        h, b, k, _ = tokens.shape
        step, agent = tokens.stride()[:2]
        flat = tokens.as_strided(((h - 1) * step + (b - 1) * agent + 3 * k,), (1,))
        return Tokens(flat.numpy(), agent * np.arange(b), step, k, self._rows, self._weight)

    def _picked(self, observation: Tensor, index: Tensor) -> Tokens:
        """Segments of observations (S, h, K, 3), contiguous, where they lie."""
        h, k = observation.shape[1:3]
        return Tokens(observation.view(-1).numpy(), 3 * k * h * index.numpy(), 3 * k, k, self._rows, self._weight)

    def _workspace(self, rows: int, kind: torch.dtype, learning: bool) -> Workspace:
        def empty(*shape: int, of: torch.dtype = kind) -> NDArray:
            return torch.empty(shape, dtype=of).numpy()

        width, core = self.width, self.core != "none"
        recurrent = rows if core else 0
        work = Work(
            empty(rows, self.tokens, of=torch.int32),
            empty(rows, self.tokens),
            empty(rows, of=torch.int32),
            torch.zeros(rows, width, dtype=kind).numpy(),  # padding stays zero
            empty(rows, width),
            empty(recurrent, 4, width),
            empty(recurrent, width),
            empty(recurrent if self.core == "lstm" else 0, width),
            empty(rows, self.outputs),
        )
        back = rows if learning else 0
        return Workspace(rows, kind, work, Deltas(empty(back, width), empty(back, width)))

    def _matrices(self, p: Parameters) -> "Matrices":
        """Parameters as `network` has them, padded, in every pass: fused optimisers do not count versions."""
        heads, heads_bias = self._heads(p)
        inputs, states, core_bias = self._core(p) if self.blocks else (p.inputs, p.states, p.inputs_bias.view(0, 0))
        layer = _padded(_padded(p.layer, self.width).T, self.width).T
        return Matrices(layer, inputs, states, heads, _padded(p.layer_bias, self.width), core_bias, heads_bias)

    def _weights(self, p: Parameters, m: "Matrices") -> Weights:
        """Parameters packed for the forward pass."""
        layer, inputs, states, heads = (_packed(x.t()) for x in m[:4])
        layer_bias, core_bias, heads_bias = (x.detach().numpy() for x in m[4:])
        table, sums_bias = p.table.detach().numpy(), p.sums_bias.detach().numpy()
        return Weights(table, sums_bias, layer, layer_bias, inputs, states, core_bias, heads, heads_bias)

    def _heads(self, p: Parameters) -> tuple[Tensor, Tensor]:
        """Actor and critic as one matrix (outputs, width) and its bias."""
        heads = _padded(torch.cat([p.actor, p.critic]), self.width)
        return _padded(heads.T, self.outputs).T, _padded(torch.cat([p.actor_bias, p.critic_bias]), self.outputs)

    def _core(self, p: Parameters) -> tuple[Tensor, Tensor, Tensor]:
        """Input and recurrent matrices, (G·width, width), with blocks in the order of `network`, and the bias."""
        order, inner = list(self.blocks), self.inner
        inputs, inputs_bias = (x.unflatten(0, (-1, inner))[order] for x in (p.inputs, p.inputs_bias))
        states, states_bias = (x.unflatten(0, (-1, inner)) for x in (p.states, p.states_bias))
        if self.core == "gru":  # n, r, z of the input; r, z, q of the state
            both = inputs_bias[1:] + states_bias[:2]
            bias = torch.cat([inputs_bias[:1], both, states_bias[2:]])
        else:
            bias = inputs_bias + states_bias
        w = self.width
        first, second = (_padded(_padded(m, w).mT, w).mT.flatten(0, 1) for m in (inputs, states))
        return first, second, _padded(bias, w)

    def backward(
        self, pass_: "Pass", p: Parameters, upstream: tuple[Tensor | None, ...]
    ) -> tuple[tuple[Tensor, ...], Parameters]:
        """Gradients of the states and parameters."""
        shape, space, kind = pass_.shape, pass_.space, p.table.dtype
        count, width, inner = shape.steps * shape.agents, self.width, self.inner
        d_logits, d_values, d_features, *d_states = upstream
        out = torch.zeros(count, self.outputs, dtype=kind)
        if d_logits is not None:
            out[:, : self.actions] = d_logits.flatten(0, 1)
        if d_values is not None:
            out[:, self.actions] = d_values.flatten()
        shown = torch.empty(0, width, dtype=kind)
        if d_features is not None:
            shown = _padded(d_features.flatten(0, 1), width).contiguous()
        carried = [
            torch.zeros(shape.agents, width, dtype=kind) if d is None else _padded(d[0], width).clone()
            for d in d_states
        ]
        none = torch.empty(0, 0, dtype=kind)
        given = Upstream(*(x.numpy() for x in (out, shown, *_pair(carried, none))))
        work, deltas = space.work, space.deltas
        assert pass_.matrices is not None
        weights = Transposed(*map(_packed, pass_.matrices[:4]))
        back_through_time(shape, pass_.begins, weights, work, pass_.cell, given, deltas)

        def zeros(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=kind)

        used = shape.from_input
        found = (
            zeros(width, width), zeros(used, width), zeros(used, width), zeros(self.outputs, width), zeros(width),
            zeros(width), zeros(4 * width if self.blocks else 0), zeros(self.outputs),
        )  # fmt: skip
        gradients = Gradients(*(x.numpy() for x in found))
        threads, table = numba.get_num_threads(), zeros(len(p.table), width)
        weight_gradients(shape, threads, work, pass_.features, given.out, deltas, gradients)
        table_gradient(shape, threads, work, deltas.first, table.numpy())
        layer, inputs, states, heads, sums_bias, layer_bias, core_bias, heads_bias = found
        a = self.actions
        core = self._uncore(inputs, states, core_bias) if self.blocks else (p.inputs,) * 4
        return tuple(d[None, :, :inner] for d in carried), Parameters(
            table[:, :inner], sums_bias[:inner], layer[:inner, :inner], layer_bias[:inner], heads[:a, :inner],
            heads_bias[:a], heads[a : a + 1, :inner], heads_bias[a : a + 1], *core,
        )  # fmt: skip

    def _uncore(self, inputs: Tensor, states: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradients of a core's matrices and biases as torch keeps them."""
        order = [self.blocks.index(k) for k in range(len(self.blocks))]
        by_block = bias.view(4, -1)
        before, after = (by_block[order], by_block[1:]) if self.core == "gru" else (by_block, by_block)
        inner, split = self.inner, (-1, self.width)
        first = inputs.unflatten(0, split)[order][:, :inner, :inner].flatten(0, 1)
        second = states.unflatten(0, split)[:, :inner, :inner].flatten(0, 1)
        return first, second, before[:, :inner].flatten(), after[:, :inner].flatten().clone()  # biases share no memory

    def release(self, space: Workspace) -> None:
        self._learning.give_back(space)


class Pass(NamedTuple):
    """A forward pass: what its backward pass needs, and its outputs."""

    network: CompiledNetwork
    shape: Shape
    space: Workspace
    begins: NDArray[np.bool_]
    cell: NDArray  # at the start
    features: NDArray
    matrices: "Matrices | None"  # None if they were packed before, for acting
    outputs: tuple[Tensor, ...]


class Matrices(NamedTuple):
    """Parameters as `network` has them: (out, in), padded to whole panels."""

    layer: Tensor  # (width, width)
    inputs: Tensor  # (from_input, width)
    states: Tensor  # (from_state, width)
    heads: Tensor  # (outputs, width)
    layer_bias: Tensor
    core_bias: Tensor  # (4, width)
    heads_bias: Tensor


def _packed(matrix: Tensor) -> NDArray:
    """A matrix in panels; one without elements as a flat array."""
    return panels_of(matrix.detach().numpy()) if matrix.numel() else matrix.detach().flatten().numpy()


def _pair(states: list[Tensor], none: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden state and cell, empty where there is none."""
    first, second, *_ = (*states, none, none)
    return first, second


class _Passes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, network: CompiledNetwork, tokens: Tensor, begins: NDArray, states: int, *tensors: Tensor):  # pyright: ignore
        state, parameters = tensors[:states], Parameters(*tensors[states:])
        made = network.forward(network._bytes(tokens), len(tokens), begins, state, parameters, learning=True)
        ctx.made, ctx.states = made._replace(outputs=()), states
        ctx.save_for_backward(*parameters)
        ctx.set_materialize_grads(False)
        return made.outputs

    @staticmethod
    def backward(ctx, *upstream: Tensor | None):  # pyright: ignore
        made: Pass | None = ctx.made
        if made is None:
            raise RuntimeError("the compiled policy keeps what a backward pass needs for one such pass only")
        ctx.made = None
        states, parameters = made.network.backward(made, Parameters(*ctx.saved_tensors), upstream)
        made.network.release(made.space)
        core = parameters if len(parameters.inputs) else (*parameters[:8], None, None, None, None)
        return None, None, None, None, *states, *core
