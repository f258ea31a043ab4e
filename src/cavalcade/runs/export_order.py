"""The mask of an order as a part of an ONNX graph."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import FIRST_RESTORE_ACTION, NUM_HOSTS, TYPE_OF, USER0
from cavalcade.envs.cage2.workflow import FIRST_REMOVE_ACTION
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.runs.export_nodes import Nodes


def masks_itself(saved: Any) -> bool:
    """Whether the exported graph applies the mask of the policy's order."""
    mask = getattr(saved, "mask", None)
    return mask is not None and not mask.by_truth


def mask_words(saved: Any) -> str:
    """How the order of an exported policy is enforced, as text for the user."""
    if saved.mask is None:
        return "not enforced by a mask; no further masking is needed"
    if saved.mask.by_truth:
        return "enforced on the true state, which the graph does not see; remove what it forbids from action_mask"
    return "its mask is part of the graph; pass action_mask as the environment gives it"


def order_nodes(saved: MlpPolicy, nodes: Nodes) -> None:
    """Nodes that compute `allowed`: the action mask without the repairs that the order forbids."""
    named = zip(("shows", "before", "repairs"), _tables(saved), strict=True)
    names = [nodes.constant(name, value) for name, value in named]
    half, several = (nodes.constant(f"at_{x}", np.array(x, np.float32)) for x in (0.5, 1.5))
    axis = nodes.constant("types_axis", np.array([1], np.int64))
    nodes.add("Greater", [nodes.add("MatMul", ["observation", names[0]], "hosts_shown"), half], "open")
    nodes.add("Cast", ["open"], "open_number", to=1)
    nodes.add("ReduceSum", ["open_number", axis], "open_count", keepdims=1)
    nodes.add("Greater", ["open_count", several], "several")
    nodes.add("Greater", [nodes.add("MatMul", ["open_number", names[1]], "open_before"), half], "behind")
    nodes.add("Not", ["open"], "closed")
    nodes.add("Or", ["behind", "closed"], "not_first")
    nodes.add("And", ["not_first", "several"], "blocked")
    nodes.add("Cast", ["blocked"], "blocked_number", to=1)
    nodes.add("Less", [nodes.add("MatMul", ["blocked_number", names[2]], "blocked_actions"), half], "unblocked")
    nodes.add("And", ["action_mask", "unblocked"], "allowed")


def allowed_by_order(saved: Any, observation: Tensor, mask: Tensor) -> Tensor:
    """As `order_nodes`, in torch operations that can be traced."""
    shows, before, repairs = map(torch.from_numpy, _tables(saved))
    seen = observation.float() @ shows > 0.5  # open types, (B, types)
    several = seen.float().sum(1, keepdim=True) > 1.5
    blocked = ((seen.float() @ before > 0.5) | ~seen) & several
    return mask & (blocked.float() @ repairs < 0.5)


def _tables(saved: Any) -> tuple[NDArray, NDArray, NDArray]:
    """Which values show a type (O, types), which type comes before which, and which actions repair it (types, A).

    A type is open if the observation shows one of its hosts compromised. If several types are open, repairs of all
    but the first of them in the order are blocked.
    """
    order = CAGE2.parse(saved.order)
    types, place = len(order), np.argsort(order)
    inputs = saved.network.layout.shape[0] if saved.recurrent else saved.spec.inputs
    shows = np.zeros((inputs, types), np.float32)
    repairs = np.zeros((types, saved.head.outputs), np.float32)
    levels = (3,) if saved.config.workflow.open_until == "removed" else (2, 3)  # of four bits per host
    for host in range(NUM_HOSTS):
        if host != USER0:
            shows[[4 * host + bit for bit in levels], TYPE_OF[host]] = 1
        repairs[TYPE_OF[host], [FIRST_REMOVE_ACTION + host, FIRST_RESTORE_ACTION + host]] = 1
    before = (place[:, None] < place[None]).astype(np.float32)  # row before column
    return shows, before, repairs
