"""Export to ONNX: one graph per policy, which needs no Cavalcade. docs/training.md describes inputs and outputs."""

from pathlib import Path
from typing import Any

import numpy as np

from cavalcade.core.errors import ConfigError, RunError
from cavalcade.policy.mlp import MlpSpec
from cavalcade.policy.module import ModuleSpec
from cavalcade.runs import export_feedforward, export_traced
from cavalcade.runs.durable import replacing

_SAMPLES = 256


def export_onnx(saved: Any, policy: int, path: Path) -> None:
    """Writes one policy as ONNX; policy: its index in a population."""
    try:
        import onnx
    except ImportError:
        raise ConfigError("export needs a package: pip install 'cavalcade[onnx]'") from None
    model = _exporter(saved).graph(saved, policy)
    onnx.checker.check_model(model)
    try:
        with replacing(path) as aside:
            onnx.save(model, str(aside))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}") from None


def check_onnx(saved: Any, policy: int, path: Path) -> float:
    """Largest difference between the exported graph and the policy in torch, on random inputs."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, map(np.asarray, session.run(None, inputs)), strict=True))

    return _exporter(saved).largest_difference(saved, policy, run, np.random.default_rng(0), _SAMPLES)


def interface(path: Path) -> str:
    """Inputs and outputs of an exported graph, as text for the user."""
    import onnx

    graph = onnx.load(str(path)).graph
    return f"inputs {_described(graph.input)}; outputs {_described(graph.output)}"


def _described(values: Any) -> str:
    import onnx

    def one(value: Any) -> str:
        kind = value.type.tensor_type
        shape = ", ".join(d.dim_param or str(d.dim_value) for d in kind.shape.dim)
        return f"{value.name} ({shape}) {onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)}"

    return ", ".join(map(one, values))


def _exporter(saved: Any) -> Any:
    """The module that knows the graph of a kind of policies."""
    spec = getattr(saved, "spec", None)
    if isinstance(spec, ModuleSpec):
        raise ConfigError(f"{saved.path} has a custom network; export it with torch.onnx")
    return export_feedforward if isinstance(spec, MlpSpec) else export_traced
