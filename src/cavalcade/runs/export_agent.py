"""Writes a CAGE-2 policy as an agent in one Python file, for a clone of the original without Cavalcade."""

import base64
import io
from pathlib import Path

import numpy as np
import torch

from cavalcade.core.errors import ConfigError
from cavalcade.envs.cage2.observe import ELAPSED_STEPS, EXTRAS
from cavalcade.envs.cage2.task import Cage2Task
from cavalcade.policy.mlp import NETS, MlpSpec
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.runs.directory import write_whole

_TEMPLATE = Path(__file__).with_name("standalone_agent.py")
_LINE = 100  # characters of weights per line


def export_agent(policy: MlpPolicy, member: int, path: Path) -> None:
    """Writes policy `member`; raises `ConfigError` for policies that the agent cannot play."""
    task = getattr(policy.config, "task", None)
    if not isinstance(task, Cage2Task) or not isinstance(getattr(policy, "spec", None), MlpSpec):
        raise ConfigError(
            f"{policy.path} is not a feed-forward policy for CAGE-2; agent files are for those, use --onnx"
        )
    if policy.mask is not None or policy.spec.context:
        raise ConfigError(f"{policy.path} follows an order, which agent files do not; use --onnx")
    if "time" in task.extras or task.variant != "challenge":
        what = "the time left" if "time" in task.extras else f"the table of variant {task.variant}"
        raise ConfigError(f"{policy.path} observes {what}, which the challenge does not show")
    if "belief" in task.extras:
        raise ConfigError(f"{policy.path} observes a belief, which agent files do not compute; use --onnx")
    extras = tuple(name for name in EXTRAS if name in task.extras)
    values = {"WEIGHTS": _archive(policy[member]), "EXTRAS": extras, "ELAPSED": tuple(ELAPSED_STEPS.tolist())}
    text = _TEMPLATE.read_text()
    for name, value in values.items():
        before, line = text.split(f"\n{name} = ", 1)
        text = f"{before}\n{name} = {_literal(value)}{line[line.index('  #') :]}"
    write_whole(path, text)


def _archive(policy: MlpPolicy) -> str:
    """Weights and biases of the actor, base64; the scaling of observations is folded into the first layer."""
    named = {
        name: tensor[0].double() for name, tensor in policy.spec.parameters(torch.from_numpy(policy.weights)).items()
    }
    shift, scale = torch.from_numpy(policy.shift[0]), torch.from_numpy(policy.scale[0])
    parts = {}
    for i, layer in enumerate(policy.spec.layers(NETS[0])):
        weight, bias = named[f"{layer.name}.weight"], named[f"{layer.name}.bias"]
        if i == 0:
            weight = weight * scale[:, None]
            bias = bias - shift @ weight
        parts[f"weight{i}"], parts[f"bias{i}"] = weight.float().numpy(), bias.float().numpy()
    buffer = io.BytesIO()
    np.savez(buffer, **parts)
    return base64.b64encode(buffer.getvalue()).decode()


def _literal(value: str | tuple) -> str:
    if isinstance(value, tuple):
        return repr(value)
    lines = [f'    "{value[i : i + _LINE]}"' for i in range(0, len(value), _LINE)]
    return "\n".join(["(", *lines, ")"])
