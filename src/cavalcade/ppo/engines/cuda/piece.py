"""The buffers of an update for a piece of a minibatch with so many rows, and the graph that was recorded with them."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cavalcade.policy.mlp import MlpSpec
from cavalcade.ppo.engines.cuda.network import Network
from cavalcade.ppo.engines.cuda.ops import Ops
from cavalcade.ppo.engines.cuda.row_loss import GROUP
from cavalcade.ppo.objective import METRICS

_LEAST = 256  # rows
_MANY = 1 << 16  # rows of all policies whose arithmetic counts for more than recording another graph


def room_for(rows: int, size: int, policies: int) -> int:
    """Rows to make room for, of `size` samples: a power of two, or some eighths of it where there are many.

    It depends on nothing else, so that a resumed run multiplies matrices of the same shapes as one that never stopped.
    """
    room = max(1 << (rows - 1).bit_length(), _LEAST)
    if policies * room > _MANY:
        step = max(room // 8, 8)
        room = -(-rows // step) * step
    return min(room, -(-size // 8) * 8)


@dataclass
class Piece:
    """Rows, networks and gradients; P policies."""

    network: Network
    words: Tensor  # (P, rows, W)
    derivatives: Tensor  # the next two, in one piece of memory
    d_logits: Tensor  # (P, rows, A or more)
    d_values: Tensor  # (P, 1, rows)
    chunk: int  # samples of a chunk, see `row_loss`
    parts: Tensor
    sums: Tensor
    terms: Tensor
    graph: Any = None

    @classmethod
    def allocate(
        cls, ops: Ops, spec: MlpSpec, weights: Tensor, rows: int, size: int, width: int, kind: torch.dtype
    ) -> "Piece":
        """rows: room for rows; size: samples per policy; width: of packed observations; kind: dtype of products."""
        policies, chunk = len(weights), ops.chunk_size(len(weights) * size)
        chunks, groups = -(-size // chunk), -(-size // (chunk * GROUP))

        def zeros(*shape: int, of: torch.dtype = weights.dtype) -> Tensor:
            return torch.zeros(shape, dtype=of, device=weights.device)

        derivatives, logits = zeros(policies * rows * (spec.padded_actions + 1)), policies * rows * spec.padded_actions
        return cls(
            network=Network(spec, weights, rows, kind),
            words=zeros(policies, rows, width, of=torch.int64),
            derivatives=derivatives,
            d_logits=derivatives[:logits].view(policies, rows, spec.padded_actions),
            d_values=derivatives[logits:].view(policies, 1, rows),
            chunk=chunk,
            parts=zeros(2 * policies * chunks, spec.actions + 1),
            sums=zeros(policies * groups, spec.actions + 1),
            terms=zeros(len(METRICS), policies * chunks),
        )
