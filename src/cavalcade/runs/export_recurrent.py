"""The ONNX graph of a recurrent policy: one step, with the memory as inputs and outputs.

Inputs: `observation` (B, K, 3) uint8, the first K tokens of the environment, `action_mask` (B, A) bool and the memory
of the core, float32: `hidden` (B, H) and, of an LSTM, `cell` (B, H); zeros where an episode begins. Outputs:
`log_probability` (B, A), `value` (B,), `action` (B,) int64, greedy, and the next memory, `next_hidden` and `next_cell`.
"""

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavalcade.policy.encoders import BagEncoder
from cavalcade.policy.heads import masked_log_probs
from cavalcade.policy.recurrent import TokenPolicy
from cavalcade.policy.tokens import PlainRows, TokenBag

_OPSET = 17
_MEMORY = ("hidden", "cell")
_STEPS = 3  # that the check plays


class _Step(nn.Module):
    """One step of a policy as a plain torch module, which torch can trace."""

    def __init__(self, policy: TokenPolicy):
        super().__init__()
        self.policy = policy
        self.bag = _PlainBag(policy.encoder.bag) if isinstance(policy.encoder, BagEncoder) else None

    def forward(self, observation: Tensor, mask: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        p, tokens = self.policy, observation.unsqueeze(0)
        if self.bag is not None:
            x = torch.relu(p.encoder.layer(torch.relu(self.bag(tokens))))  # pyright: ignore
        else:
            x = p.encoder(tokens)
        after: tuple[Tensor, ...] = ()
        if p.core is not None:
            state = tuple(part.unsqueeze(0) for part in memory)
            x, found = p.core(x, state if len(state) == 2 else state[0])
            after = tuple(part[0] for part in (found if len(state) == 2 else (found,)))
        log_prob = masked_log_probs(p.actor(x[0]), mask)
        return log_prob, p.critic(x[0]).squeeze(-1), log_prob.argmax(-1), *after


class _PlainBag(nn.Module):
    """`TokenBag` without its compiled kernel."""

    def __init__(self, bag: TokenBag):
        super().__init__()
        self.bag, self.rows = bag, PlainRows(bag.layout)

    def forward(self, tokens: Tensor) -> Tensor:
        rows, weights = self.rows(tokens)
        table = torch.cat([self.bag.table, torch.zeros_like(self.bag.table[:1])])
        return (table[rows.long()] * weights.unsqueeze(-1)).sum(-2) + self.bag.bias


def graph(saved: Any, policy: int) -> Any:
    """The policy as an ONNX model."""
    import onnx

    step, inputs = _Step(saved.policy).eval(), _inputs(saved.policy, 2, np.random.default_rng(0))
    memory = [name for name in inputs if name in _MEMORY]
    outputs = ["log_probability", "value", "action", *(f"next_{name}" for name in memory)]
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
            opset_version=_OPSET,
            dynamo=False,
        )
    return onnx.load_from_string(content.getvalue())


def _inputs(policy: TokenPolicy, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Random tokens and masks, and the memory at the beginning of an episode."""
    v = policy.layout
    place = rng.integers(v.height, size=(count, v.tokens)) << 4 | rng.integers(v.width, size=(count, v.tokens))
    place[:, 0] = 254  # without a place
    place[:, v.tokens // 2 + 1 :] = 255  # the end of the list
    rest = (rng.integers(len(v.features), size=place.shape), rng.integers(256, size=place.shape))
    mask = rng.random((count, policy.actions)) < 0.7
    mask[:, 0] = True
    memory = {_MEMORY[i]: part[0].numpy() for i, part in enumerate(policy.initial_state(count))}
    return {"observation": np.stack([place, *rest], -1).astype(np.uint8), "action_mask": mask, **memory}


@torch.no_grad()
def largest_difference(
    saved: Any, policy: int, run: Callable[[dict[str, Any]], dict[str, Any]], rng: np.random.Generator, count: int
) -> float:
    """Largest difference between the graph and torch over a few steps with memory; run: calls the graph."""
    inputs, gap = _inputs(saved.policy, count, rng), 0.0
    state = saved.policy.initial_state(count)
    memory = [name for name in inputs if name in _MEMORY]
    for _ in range(_STEPS):
        inputs |= {name: value for name, value in _inputs(saved.policy, count, rng).items() if name not in memory}
        tokens = torch.from_numpy(inputs["observation"])
        out, state = saved.policy(tokens[None], state, np.zeros((1, count), np.bool_))
        found, mask = run(inputs), inputs["action_mask"]
        expected = masked_log_probs(out.logits[0], torch.from_numpy(mask)).numpy()
        gaps = [np.where(mask, found["log_probability"] - expected, 0), found["value"] - out.values[0].numpy()]
        gaps += [found[f"next_{name}"] - part[0].numpy() for name, part in zip(memory, state, strict=True)]
        gap = max(gap, *(float(np.abs(x).max()) for x in gaps))
        inputs |= {name: found[f"next_{name}"] for name in memory}
    return gap
