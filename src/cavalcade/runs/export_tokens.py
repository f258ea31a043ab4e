"""What the ONNX graph of a policy on tokens needs: an encoder that torch can trace, and tokens to try it on."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cavalcade.policy.encoders import BagEncoder
from cavalcade.policy.tokens import PlainRows, TokenBag, TokenLayout


def traceable_encoder(encoder: Any) -> nn.Module:
    """An encoder without compiled kernels, (1, b, K, 3) → (1, b, H)."""
    if not isinstance(encoder, BagEncoder):
        return encoder
    return nn.Sequential(_PlainBag(encoder.bag), nn.ReLU(), encoder.layer, nn.ReLU())


class _PlainBag(nn.Module):
    """`TokenBag` without its compiled kernel."""

    def __init__(self, bag: TokenBag):
        super().__init__()
        self.bag, self.rows = bag, PlainRows(bag.layout)

    def forward(self, tokens: Tensor) -> Tensor:
        rows, weights = self.rows(tokens)
        table = torch.cat([self.bag.table, torch.zeros_like(self.bag.table[:1])])
        return (table[rows.long()] * weights.unsqueeze(-1)).sum(-2) + self.bag.bias


def random_tokens(layout: TokenLayout, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Tokens (B, K, 3): one without a place, some with, and the end of the list."""
    place = rng.integers(layout.height, size=(count, layout.tokens)) << 4
    place |= rng.integers(layout.width, size=place.shape)
    place[:, 0] = 254  # without a place
    place[:, layout.tokens // 2 + 1 :] = 255  # the end of the list
    rest = (rng.integers(len(layout.features), size=place.shape), rng.integers(256, size=place.shape))
    return np.stack([place, *rest], -1).astype(np.uint8)
