"""The ONNX graph of a recurrent or convolutional policy: one step, traced by torch, with the memory as an argument.

Inputs: `observation`: pixels (B, O) as the environment gives them, flat, uint8 or float32; values (B, O) float32; or
the first K tokens (B, K, 3) uint8. For discrete actions `action_mask` (B, A) bool. Of a recurrent core `hidden` (B, H)
float32 and, of an LSTM, `cell` (B, H), zeros where an episode begins. Outputs: those of a feed-forward policy
(`export_feedforward`), and the next memory, `next_hidden` and `next_cell`.
"""

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavalcade.policy.cnn import CnnSpec
from cavalcade.policy.heads import Head, Point, masked_log_probs
from cavalcade.policy.recurrent import RecurrentNetwork, TokenPolicy
from cavalcade.runs.export_feedforward import OPSET, action_scaling
from cavalcade.runs.export_order import allowed_by_order, masks_itself
from cavalcade.runs.export_tokens import random_tokens, traceable_encoder

_MEMORY = ("hidden", "cell")
_STEPS = 3  # that the check plays


class _Step(nn.Module):
    """One step of a policy as a plain torch module, which torch can trace."""

    def __init__(self, saved: Any, policy: int):
        super().__init__()
        self.saved, self.head, self.reward_scale = saved, _head(saved), _reward_scale(saved, policy)
        self.network, self.weights = _network(saved), nn.ParameterDict()
        if self.network is None:
            named = saved.spec.parameters(torch.from_numpy(saved.weights[policy : policy + 1]))
            self.weights = nn.ParameterDict({name.replace(".", "_"): x[0] for name, x in named.items()})
        elif isinstance(self.network, TokenPolicy):
            self.encoder = traceable_encoder(self.network.encoder)
        else:
            self.encoder = self.network.encoder

    def forward(self, observation: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        outputs, values, after = self._outputs(observation, rest[1:] if self.head.integral else rest)
        values = values / self.reward_scale
        if isinstance(self.head, Point):
            mean = outputs[:, : self.head.outputs]
            return mean, values, _scaled(self.saved, mean), *after
        allowed = allowed_by_order(self.saved, observation, rest[0]) if masks_itself(self.saved) else rest[0]
        parts = zip(outputs.split(self.head.sizes, -1), allowed.split(self.head.sizes, -1), strict=True)
        log_prob = torch.cat([masked_log_probs(x, m) for x, m in parts], -1)
        return log_prob, values, self.head.greedy(outputs, allowed), *after

    def _outputs(self, observation: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        n = self.network
        if n is None:
            spec: CnnSpec = self.saved.spec
            w = {name: self.weights[name.replace(".", "_")] for name in spec.shapes}
            return *spec.outputs(w, observation), ()
        x, after = self.encoder(observation.unsqueeze(0)), ()
        if n.core is not None:
            state = tuple(part.unsqueeze(0) for part in memory)
            x, found = n.core(x, state if len(state) == 2 else state[0])
            after = tuple(part[0] for part in (found if len(state) == 2 else (found,)))
        return n.actor(x[0]), n.critic(x[0]).squeeze(-1), after


def _network(saved: Any) -> RecurrentNetwork | None:
    """The network of a recurrent policy; None for convolutions without memory."""
    return saved.played[0] if saved.recurrent else None


def _head(saved: Any) -> Head:
    return saved.played[1] if saved.recurrent else saved.head


def _reward_scale(saved: Any, policy: int) -> float:
    return float(np.atleast_1d(saved.reward_scale)[policy])


def _scaled(saved: Any, mean: Tensor) -> Tensor:
    """Continuous actions as the environment takes them."""
    scaling = action_scaling(saved)
    if scaling is None:
        return mean.clone()
    middle, half, low, high = map(torch.from_numpy, scaling)
    return torch.minimum(torch.maximum(middle + half * mean, low), high)


def graph(saved: Any, policy: int) -> Any:
    """One policy as an ONNX model."""
    import onnx

    step, inputs = _Step(saved, policy).eval(), _inputs(saved, 2, np.random.default_rng(0))
    memory = [name for name in inputs if name in _MEMORY]
    first = "mean" if isinstance(step.head, Point) else "log_probability"
    outputs = [first, "value", "action", *(f"next_{name}" for name in memory)]
    content = io.BytesIO()
    with warnings.catch_warnings():  # not without gradients: torch would fuse attention into what ONNX does not have
        warnings.simplefilter("ignore")  # of the tracer: about constants, which are meant
        torch.onnx.export(
            step,
            tuple(map(torch.from_numpy, inputs.values())),
            content,  # pyright: ignore[reportArgumentType] — the tracer writes to files and buffers
            input_names=list(inputs),
            output_names=outputs,
            dynamic_axes={name: {0: "B"} for name in (*inputs, *outputs)},
            opset_version=OPSET,
            dynamo=False,
        )
    return onnx.load_from_string(content.getvalue())


def _inputs(saved: Any, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Random observations and masks, and the memory at the beginning of an episode."""
    network, head = _network(saved), _head(saved)
    found: dict[str, Any] = {}
    if isinstance(network, TokenPolicy):
        found["observation"] = random_tokens(network.layout, count, rng)
    else:
        image = saved.spec.image if network is None else network.layout.image  # pyright: ignore — of rows
        size = saved.spec.inputs if network is None else network.layout.shape[0]
        low, high = (image.low, image.high) if image else (0, 1)
        kind = np.uint8 if image and (low, high) == (0, 255) else np.float32
        found["observation"] = rng.integers(int(low), int(high) + 1, size=(count, size)).astype(kind)
    if head.integral:
        mask = rng.random((count, head.outputs)) < 0.7
        mask[:, np.cumsum((0, *head.sizes[:-1]))] = True  # each part has an action
        found["action_mask"] = mask
    memory = network.initial_state(count) if network is not None else ()
    return found | {_MEMORY[i]: part[0].numpy() for i, part in enumerate(memory)}


def largest_difference(
    saved: Any, policy: int, run: Callable[[dict[str, Any]], dict[str, Any]], rng: np.random.Generator, count: int
) -> float:
    """Largest difference between the graph and the policy over a few steps with memory; run: calls the graph.

    Values are compared in the scale of training, which does not depend on that of rewards.
    """
    one = saved[policy]
    inputs, state, gap = _inputs(saved, count, rng), one.initial_state(count), 0.0
    memory = [name for name in inputs if name in _MEMORY]
    for _ in range(_STEPS):
        inputs |= {name: value for name, value in _inputs(saved, count, rng).items() if name not in memory}
        shown, values = one.evaluate(inputs["observation"], inputs.get("action_mask"), state)
        found = run(inputs)
        mine = found["mean"] if "mean" in found else np.exp(found["log_probability"])
        gaps = [mine - shown, (found["value"] - values) * _reward_scale(saved, policy)]
        if memory:
            gaps += [found[f"next_{name}"] - part[0].numpy() for name, part in zip(memory, state.memory, strict=True)]
        gap = max(gap, *(float(np.abs(x).max()) for x in gaps))
        inputs |= {name: found[f"next_{name}"] for name in memory}
    return gap
