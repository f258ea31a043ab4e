"""The mask of an order as a part of an ONNX graph."""

import numpy as np

from cavalcade.envs.cage2.orders import CAGE2
from cavalcade.envs.cage2.scenario import FIRST_RESTORE_ACTION, NUM_HOSTS, TYPE_OF, USER0
from cavalcade.envs.cage2.workflow import FIRST_REMOVE_ACTION
from cavalcade.ppo.mlp_policy import MlpPolicy
from cavalcade.runs.export_nodes import Nodes


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


def order_nodes(saved: MlpPolicy, nodes: Nodes) -> None:
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
    named = (("shows", shows), ("before", before), ("repairs", repairs))
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
