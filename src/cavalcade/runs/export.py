"""Export to ONNX: one graph with the observation and the action mask as inputs.

If a policy follows an order that is enforced by a mask on its observations, the graph includes that mask.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import FIRST_RESTORE_ACTION, NUM_HOSTS, TYPE_OF, USER0
from cavalcade.envs.cage2.workflow import FIRST_REMOVE_ACTION
from cavalcade.policy.heads import Choice
from cavalcade.policy.mlp import NETS
from cavalcade.ppo.mlp_policy import MlpPolicy

_OPSET = 17
_IMPOSSIBLE = -1e30


def export_onnx(saved: MlpPolicy, policy: int, path: Path) -> None:
    """Writes one policy as ONNX.

    Inputs: `observation` (B, O) float32, as the environment gives it, and `action_mask` (B, A) bool. Outputs:
    `log_probability` (B, A), `value` (B,) and `action` (B,) int64, greedy. The mask of an order is applied to
    `action_mask`, unless it needs the true state: see `mask_words`.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ConfigError("export needs a package: pip install 'cavalcade[onnx]'") from None
    if not isinstance(saved.head, Choice):
        raise ConfigError(f"{saved.path} has multi-part actions; only policies with a single discrete action export")
    spec = saved.spec
    weights, constants, nodes = saved.weights[policy], [], []

    def constant(name: str, value: NDArray) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name

    shift = constant("shift", saved.shift[policy].astype(np.float32))
    scale = constant("scale", saved.scale[policy].astype(np.float32))
    nodes += [
        helper.make_node("Sub", ["observation", shift], ["shifted"]),
        helper.make_node("Mul", ["shifted", scale], ["x"]),
    ]
    for net in NETS:
        before, layers = "x", spec.layers(net)
        for i, layer in enumerate(layers):
            w = weights[layer.weight : layer.bias].reshape(layer.fan_in, layer.columns)[:, : layer.fan_out]
            b = weights[layer.bias : layer.bias + layer.fan_out]
            if i == 0 and spec.context:
                b = b + saved.context[policy].astype(w.dtype) @ w[spec.inputs :]
                w = w[: spec.inputs]
            names = [constant(f"{layer.name}.weight", w), constant(f"{layer.name}.bias", b)]
            nodes.append(helper.make_node("Gemm", [before, *names], [f"{layer.name}.sum"]))
            before = f"{layer.name}.sum"
            if i < len(layers) - 1:
                nodes.append(helper.make_node("Tanh", [before], [layer.name]))
                before = layer.name
    logits, value = f"{spec.layers('actor')[-1].name}.sum", f"{spec.layers('critic')[-1].name}.sum"
    impossible = constant("impossible", np.array(_IMPOSSIBLE, np.float32))
    one = constant("one", np.array([1], np.int64))
    allowed = "action_mask"
    if masks_itself(saved):
        nodes += _order_nodes(saved, constant, helper.make_node)
        allowed = "allowed"
    nodes += [
        helper.make_node("Where", [allowed, logits, impossible], ["masked"]),
        helper.make_node("LogSoftmax", ["masked"], ["log_probability"], axis=-1),
        helper.make_node("ArgMax", ["masked"], ["action"], axis=-1, keepdims=0),
        helper.make_node("Squeeze", [value, one], ["value"]),
    ]
    graph = helper.make_graph(
        nodes,
        "policy",
        [
            helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["B", spec.inputs]),
            helper.make_tensor_value_info("action_mask", TensorProto.BOOL, ["B", spec.actions]),
        ],
        [
            helper.make_tensor_value_info("log_probability", TensorProto.FLOAT, ["B", spec.actions]),
            helper.make_tensor_value_info("value", TensorProto.FLOAT, ["B"]),
            helper.make_tensor_value_info("action", TensorProto.INT64, ["B"]),
        ],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)
    onnx.checker.check_model(model)
    try:
        onnx.save(model, str(path))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


def masks_itself(saved: MlpPolicy) -> bool:
    """Whether the exported graph applies the mask of the policy's order."""
    return saved.mask is not None and not saved.mask.by_truth


def mask_words(saved: MlpPolicy) -> str:
    """How the order of an exported policy is enforced, as text for the user."""
    if saved.mask is None:
        return "not enforced by a mask; no further masking is needed"
    if saved.mask.by_truth:
        return "enforced on the true state, which the graph does not see; remove what it forbids from action_mask"
    return "its mask is part of the graph; pass action_mask as the environment gives it"


def _order_nodes(saved: MlpPolicy, constant: Callable[[str, NDArray], str], node: Callable[..., Any]) -> list[Any]:
    """Nodes that compute `allowed`: the action mask without the repairs that the order forbids.

    A type is open if the observation shows one of its hosts compromised. If several types are open, repairs of all
    but the first of them in the order are blocked.
    """
    order = CAGE2.parse(saved.order)
    types, place = len(order), np.argsort(order)
    shows = np.zeros((saved.spec.inputs, types), np.float32)
    repairs = np.zeros((types, saved.spec.actions), np.float32)
    levels = (3,) if saved.config.workflow.open_until == "removed" else (2, 3)  # of four bits per host
    for host in range(NUM_HOSTS):
        if host != USER0:
            shows[[4 * host + bit for bit in levels], TYPE_OF[host]] = 1
        repairs[TYPE_OF[host], [FIRST_REMOVE_ACTION + host, FIRST_RESTORE_ACTION + host]] = 1
    before = (place[:, None] < place[None]).astype(np.float32)  # row before column
    names = [constant(name, value) for name, value in (("shows", shows), ("before", before), ("repairs", repairs))]
    half, several = (constant(f"at_{x}", np.array(x, np.float32)) for x in (0.5, 1.5))
    axis = constant("types_axis", np.array([1], np.int64))
    return [
        node("MatMul", ["observation", names[0]], ["hosts_shown"]),
        node("Greater", ["hosts_shown", half], ["open"]),
        node("Cast", ["open"], ["open_number"], to=1),
        node("ReduceSum", ["open_number", axis], ["open_count"], keepdims=1),
        node("Greater", ["open_count", several], ["several"]),
        node("MatMul", ["open_number", names[1]], ["open_before"]),
        node("Greater", ["open_before", half], ["behind"]),
        node("Not", ["open"], ["closed"]),
        node("Or", ["behind", "closed"], ["not_first"]),
        node("And", ["not_first", "several"], ["blocked"]),
        node("Cast", ["blocked"], ["blocked_number"], to=1),
        node("MatMul", ["blocked_number", names[2]], ["blocked_actions"]),
        node("Less", ["blocked_actions", half], ["unblocked"]),
        node("And", ["action_mask", "unblocked"], ["allowed"]),
    ]


def check_onnx(saved: MlpPolicy, policy: int, path: Path, samples: int = 256) -> float:
    """Largest difference between the exported graph and the policy in torch, on random observations and masks."""
    import onnxruntime
    import torch

    from cavalcade.policy.heads import masked_log_probs
    from cavalcade.policy.mlp import forward

    rng = np.random.default_rng(0)
    observation = rng.integers(2, size=(samples, saved.spec.inputs)).astype(np.float32)
    mask = rng.random((samples, saved.spec.actions)) < 0.7
    mask[:, 0] = True
    kept = mask.copy()
    if masks_itself(saved) and (order_mask := saved.mask):
        order_mask.restrict(observation, kept)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    log_prob, value, _ = session.run(None, {"observation": observation, "action_mask": mask})
    x = (torch.from_numpy(observation) - torch.from_numpy(saved.shift[policy]).float()) * torch.from_numpy(
        saved.scale[policy]
    ).float()
    weights = torch.from_numpy(saved.weights[policy : policy + 1])
    context = torch.from_numpy(saved.context[policy : policy + 1]).float()
    logits, values = forward(saved.spec, weights, x.unsqueeze(0), context)
    expected = masked_log_probs(logits[0], torch.from_numpy(kept)).numpy()
    gap = np.abs(np.where(kept, np.asarray(log_prob) - expected, 0)).max()
    return float(max(gap, np.abs(np.asarray(value) - values[0].numpy()).max()))
