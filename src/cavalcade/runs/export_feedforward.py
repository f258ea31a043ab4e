"""The ONNX graph of a feed-forward policy.

Inputs: `observation` (B, O) float32, as the environment gives it, flat, and for discrete actions `action_mask` (B, A)
bool. Outputs for discrete actions: `log_probability` (B, A), `value` (B,) and `action`, int64, greedy: (B,), or (B, D)
for D-part actions, whose masks and log-probabilities follow one another. For continuous actions: `mean` (B, D), `value`
and `action` (B, D) float32: the mean, scaled and clipped to the bounds of the environment.

If a policy follows an order that is enforced by a mask on its observations, the graph includes that mask.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavalcade.policy.heads import Point, masked_log_probs
from cavalcade.policy.mlp import NETS, forward
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.runs.export_nodes import Nodes
from cavalcade.runs.export_order import masks_itself, order_nodes
from cavalcade.targets import target_named

OPSET = 17
_IMPOSSIBLE = -1e30


def graph(saved: MlpPolicy, policy: int) -> Any:
    """One policy as an ONNX model."""
    from onnx import TensorProto, helper

    nodes = Nodes()
    logits, value = _networks(saved, policy, nodes)
    inputs = [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["B", saved.spec.inputs])]
    outputs = [helper.make_tensor_value_info("value", TensorProto.FLOAT, ["B"])]
    row = nodes.add("Squeeze", [value, nodes.constant("one", np.array([1], np.int64))], "normalised_value")
    scale = nodes.constant("reward_scale", saved.reward_scale[policy : policy + 1].astype(np.float32))
    nodes.add("Div", [row, scale], "value")
    actions = saved.spec.actions
    if isinstance(saved.head, Point):
        _continuous(saved, logits, nodes)
        outputs.insert(0, helper.make_tensor_value_info("mean", TensorProto.FLOAT, ["B", actions]))
        outputs.append(helper.make_tensor_value_info("action", TensorProto.FLOAT, ["B", actions]))
    else:
        _discrete(saved, logits, nodes)
        inputs.append(helper.make_tensor_value_info("action_mask", TensorProto.BOOL, ["B", actions]))
        outputs.insert(0, helper.make_tensor_value_info("log_probability", TensorProto.FLOAT, ["B", actions]))
        outputs.append(helper.make_tensor_value_info("action", TensorProto.INT64, ["B", *saved.head.parts]))
    made = helper.make_graph(nodes.all, "policy", inputs, outputs, nodes.constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def _networks(saved: MlpPolicy, policy: int, nodes: Nodes) -> tuple[str, str]:
    """Actor and critic; returns the names of their outputs."""
    spec, weights = saved.spec, saved.weights[policy]
    shift = nodes.constant("shift", saved.shift[policy].astype(np.float32))
    scale = nodes.constant("scale", saved.scale[policy].astype(np.float32))
    nodes.add("Mul", [nodes.add("Sub", ["observation", shift], "shifted"), scale], "x")
    found = []
    for net in NETS:
        before, layers = "x", spec.layers(net)
        for i, layer in enumerate(layers):
            w = weights[layer.weight : layer.bias].reshape(layer.fan_in, layer.columns)[:, : layer.fan_out]
            b = weights[layer.bias : layer.bias + layer.fan_out]
            if i == 0 and spec.context:
                b = b + saved.context[policy].astype(w.dtype) @ w[spec.inputs :]
                w = w[: spec.inputs]
            names = [nodes.constant(f"{layer.name}.weight", w), nodes.constant(f"{layer.name}.bias", b)]
            before = nodes.add("Gemm", [before, *names], f"{layer.name}.sum")
            if i < len(layers) - 1:
                before = nodes.add("Tanh", [before], layer.name)
        found.append(before)
    return found[0], found[1]


def _continuous(saved: MlpPolicy, mean: str, nodes: Nodes) -> None:
    """`mean`, and `action`: as the environment scales and clips it."""
    nodes.add("Identity", [mean], "mean")
    scaling = action_scaling(saved)
    if scaling is None:
        nodes.add("Identity", ["mean"], "action")
        return
    middle, half, low, high = (
        nodes.constant(name, value) for name, value in zip(("middle", "half", "low", "high"), scaling, strict=True)
    )
    scaled = nodes.add("Add", [nodes.add("Mul", ["mean", half], "stretched"), middle], "scaled")
    nodes.add("Min", [nodes.add("Max", [scaled, low], "above"), high], "action")


def action_scaling(saved: Any) -> tuple[NDArray, NDArray, NDArray, NDArray] | None:
    """Middle and half-width of continuous actions, and their bounds; None if the environment takes them as they are."""
    layout = target_named(saved.config.target).action_layout(saved.config)
    return layout.scaling if layout else None


def _discrete(saved: MlpPolicy, logits: str, nodes: Nodes) -> None:
    """`log_probability` and `action` of one categorical, or of several side by side."""
    allowed = "action_mask"
    if masks_itself(saved):
        order_nodes(saved, nodes)
        allowed = "allowed"
    impossible = nodes.constant("impossible", np.array(_IMPOSSIBLE, np.float32))
    masked = nodes.add("Where", [allowed, logits, impossible], "masked")
    if not saved.head.parts:
        nodes.add("LogSoftmax", [masked], "log_probability", axis=-1)
        nodes.add("ArgMax", [masked], "action", axis=-1, keepdims=0)
        return
    probabilities, actions, start, axis = [], [], 0, nodes.constant("parts_axis", np.array([1], np.int64))
    for i, size in enumerate(saved.head.sizes):
        ends = [nodes.constant(f"part{i}.{n}", np.array([at], np.int64)) for n, at in enumerate((start, start + size))]
        part = nodes.add("Slice", [masked, *ends, axis], f"part{i}")
        probabilities.append(nodes.add("LogSoftmax", [part], f"part{i}.log_probability", axis=-1))
        actions.append(nodes.add("ArgMax", [part], f"part{i}.action", axis=-1, keepdims=1))
        start += size
    nodes.add("Concat", probabilities, "log_probability", axis=-1)
    nodes.add("Concat", actions, "action", axis=-1)


def largest_difference(
    saved: MlpPolicy, policy: int, run: Callable[[dict[str, Any]], dict[str, Any]], rng: np.random.Generator, count: int
) -> float:
    """Largest difference between the graph and torch on random observations and masks; run: calls the graph."""
    observation = rng.integers(2, size=(count, saved.spec.inputs)).astype(np.float32)
    x = (torch.from_numpy(observation) - torch.from_numpy(saved.shift[policy]).float()) * torch.from_numpy(
        saved.scale[policy]
    ).float()
    weights = torch.from_numpy(saved.weights[policy : policy + 1])
    context = torch.from_numpy(saved.context[policy : policy + 1]).float()
    outputs, values = (part[0] for part in forward(saved.spec, weights, x.unsqueeze(0), context))
    if isinstance(saved.head, Point):
        found, scaling = run({"observation": observation}), action_scaling(saved)
        action = mean = outputs[:, : saved.spec.actions].numpy()
        if scaling is not None:
            middle, half, low, high = scaling
            action = np.clip(middle + half * mean, low, high)
        gaps = [found["mean"] - mean, found["action"] - action]
    else:
        mask = rng.random((count, saved.spec.actions)) < 0.7
        mask[:, np.cumsum((0, *saved.head.sizes[:-1]))] = True  # each part has an action
        kept = mask.copy()
        if masks_itself(saved) and (order_mask := saved.mask):
            order_mask.restrict(observation, kept)
        found = run({"observation": observation, "action_mask": mask})
        sizes = saved.head.sizes
        parts = zip(outputs.split(sizes, -1), torch.from_numpy(kept).split(sizes, -1), strict=True)
        expected = torch.cat([masked_log_probs(x, m) for x, m in parts], -1).numpy()
        gaps = [np.where(kept, found["log_probability"] - expected, 0)]
    gaps.append(found["value"] * saved.reward_scale[policy] - values.numpy())
    return float(max(np.abs(gap).max() for gap in gaps))
