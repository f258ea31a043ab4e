"""Policies for use elsewhere: one ONNX graph with the observation and the action mask as inputs."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cavalcade.errors import ConfigError, RunError
from cavalcade.policy.heads import Choice
from cavalcade.policy.mlp import NETS
from cavalcade.runs.policy import SavedPolicy

_OPSET = 17
_IMPOSSIBLE = -1e30


def export_onnx(saved: SavedPolicy, policy: int, path: Path) -> None:
    """Writes one policy as ONNX.

    Inputs: `observation` (B, O) float32, as the environment gives it, and `action_mask` (B, A) bool. Outputs:
    `log_probability` (B, A), `value` (B,) and `action` (B,) int64, the likeliest.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise ConfigError("export needs a package: pip install 'cavalcade[onnx]'") from None
    if not isinstance(saved.head, Choice):
        raise ConfigError(f"{saved.path} has actions of several parts; only policies that choose one of a list export")
    spec = saved.spec
    weights, constants, nodes = saved.weights[policy], [], []

    def constant(name: str, value: NDArray) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
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
    nodes += [
        helper.make_node("Where", ["action_mask", logits, impossible], ["masked"]),
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


def check_onnx(saved: SavedPolicy, policy: int, path: Path, samples: int = 256) -> float:
    """The largest difference between the exported policy and ours in torch, over random observations and masks."""
    import onnxruntime
    import torch

    from cavalcade.policy.heads import masked_log_probs
    from cavalcade.policy.mlp import forward

    rng = np.random.default_rng(0)
    observation = rng.integers(2, size=(samples, saved.spec.inputs)).astype(np.float32)
    mask = rng.random((samples, saved.spec.actions)) < 0.7
    mask[:, 0] = True
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    log_prob, value, _ = session.run(None, {"observation": observation, "action_mask": mask})
    x = (torch.from_numpy(observation) - torch.from_numpy(saved.shift[policy]).float()) * torch.from_numpy(
        saved.scale[policy]
    ).float()
    weights = torch.from_numpy(saved.weights[policy : policy + 1])
    context = torch.from_numpy(saved.context[policy : policy + 1]).float()
    logits, values = forward(saved.spec, weights, x.unsqueeze(0), context)
    expected = masked_log_probs(logits[0], torch.from_numpy(mask)).numpy()
    gap = np.abs(np.where(mask, np.asarray(log_prob) - expected, 0)).max()
    return float(max(gap, np.abs(np.asarray(value) - values[0].numpy()).max()))
