"""Token encoders, (h, b, K, 3) → (h, b, H): sums of embeddings, convolutions, or attention."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from torch import Tensor, nn

from cavalcade.policy.tokens import END, NOWHERE, PlainRows, TokenBag, TokenLayout


class BagEncoder(nn.Module):
    """A sum of embeddings and a linear layer, each with ReLU; by far the fastest encoder on a CPU."""

    def __init__(self, layout: TokenLayout, width: int):
        super().__init__()
        self.bag = TokenBag(layout, width)
        self.layer = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.relu(self.layer(F.relu(self.bag(tokens))))


class ConvEncoder(nn.Module):
    """Two convolutions over an image of the window; tokens without a place go through a separate linear layer."""

    def __init__(self, layout: TokenLayout, width: int):
        super().__init__()
        self.layout = layout
        self.first = nn.Conv2d(layout.channels, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        with torch.no_grad():
            pictured = self._pictured(torch.zeros(1, layout.channels, layout.height, layout.width)).shape[1]
        self.pictured = nn.Linear(pictured, width)
        self.placeless = nn.Linear(layout.channels, width)
        self.register_buffer("weight", torch.from_numpy(layout.tables.weight).flatten(), persistent=False)

    def _pictured(self, picture: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(picture)))).flatten(1)

    def forward(self, tokens: Tensor) -> Tensor:
        v, cells = self.layout, self.layout.height * self.layout.width
        flat = tokens.flatten(0, 1).long()
        place, feature, value = flat.unbind(-1)
        tag = v.features.index("tag") if "tag" in v.features else -1
        is_tag = feature == tag
        channel = torch.where(is_tag, len(v.features) + value.clamp(max=v.tags - 1), feature)
        row, column = place // 16, place % 16
        fits = (place != END) & (feature < len(v.features))
        seen = fits & (place != NOWHERE) & (row < v.height) & (column < v.width)
        weight: Tensor = self.weight  # pyright: ignore[reportAssignmentType]
        strength = torch.where(is_tag, 1.0, weight[feature * 256 + value])
        size = v.channels * (cells + 1)  # per channel: cells, and one slot for no place
        spot = channel * (cells + 1) + torch.where(seen, row * v.width + column, cells)
        spot = torch.where(seen | (fits & (place == NOWHERE)), spot, size)  # invalid tokens go to a last bin
        painted = torch.zeros(flat.shape[0], size + 1, dtype=strength.dtype, device=tokens.device)
        painted = painted.scatter_add(1, spot, strength)[:, :-1].view(-1, v.channels, cells + 1)
        picture = painted[..., :-1].reshape(-1, v.channels, v.height, v.width)
        found = self.pictured(self._pictured(picture)) + self.placeless(painted[..., -1])
        return F.relu(found).view(*tokens.shape[:2], -1)


class PerceiverEncoder(nn.Module):
    """Learnt queries attend to all tokens (Jaegle et al. 2021); places are Fourier features of row and column."""

    frequencies, queries, heads = 4, 8, 4

    def __init__(self, layout: TokenLayout, width: int):
        super().__init__()
        self.layout, self.width = layout, width
        self.rows = PlainRows(layout)
        self.embedding = nn.Embedding(layout.tables.rows + 1, 16)
        self.enter = nn.Linear(16 + 1 + 4 * self.frequencies + 1, width)
        self.query = nn.Parameter(torch.randn(self.queries, width) / math.sqrt(width))
        self.keys = nn.Linear(width, 2 * width)
        self.mix = nn.TransformerEncoderLayer(width, self.heads, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.leave = nn.Linear(self.queries * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Cross-attention from queries to tokens, then one transformer layer over the queries."""
        flat = tokens.flatten(0, 1)
        rows, weight = self.rows(flat)
        x = self.enter(torch.cat([self.embedding(rows), weight.unsqueeze(-1), self._places(flat[..., 0])], -1))
        n, k, _ = x.shape
        keys, values = self.keys(F.relu(x)).view(n, k, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        asked = self.query.view(1, self.queries, self.heads, -1).transpose(1, 2).expand(n, -1, -1, -1).to(keys.dtype)
        there = (flat[..., 0] != END).view(n, 1, 1, k)
        there = there | ~there.any(-1, keepdim=True)  # an empty list attends to its padding
        found = F.scaled_dot_product_attention(asked, keys, values, there)
        found = self.mix(found.transpose(1, 2).reshape(n, self.queries, -1))
        return F.relu(self.leave(found.flatten(1))).view(*tokens.shape[:2], -1)

    def _places(self, place: Tensor) -> Tensor:
        """Fourier features of rows and columns, and 1 if the token has a place, else 0."""
        here = (place < NOWHERE).float().unsqueeze(-1)
        spots = torch.stack([place // 16, place % 16], -1).float() / 15
        turns = spots.unsqueeze(-1) * math.pi * 2 ** torch.arange(self.frequencies, device=place.device)
        waves = torch.cat([turns.sin(), turns.cos()], -1).flatten(-2)
        return torch.cat([waves * here, here], -1)


ENCODERS: dict[str, Callable[[TokenLayout, int], nn.Module]] = {
    "bag": BagEncoder, "conv": ConvEncoder, "perceiver": PerceiverEncoder,
}  # fmt: skip
