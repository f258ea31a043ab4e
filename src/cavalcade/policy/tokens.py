"""Observations as lists of tokens, and the sum of embeddings that is a network's first layer.

A token is three bytes: place, feature, value. Place is row << 4 | column within the window around the agent, or 254 for
features without a place; 255 ends the list. Each (place, feature) has its own row of an embedding table, or several
rows where the value is categorical: kinds of objects everywhere, small numbers in the agent's own cell and without a
place. Other values scale their row.

Tables are arrays indexed by bytes, so that a kernel maps tokens to rows without branching on their meaning.
"""

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 — its usual name
from numpy.typing import NDArray
from torch import Tensor

from cavalcade.core.errors import ConfigError
from cavalcade.core.jit import kernel, routine
from cavalcade.core.launch import Launcher
from cavalcade.policy.bag import ONE

NOWHERE, END = 254, 255
_LEVELS = 16  # categories of a small number
_LINEAR = ("episode_completion_pct", "agent_id")  # values that are not small numbers
_TAG = "tag"


@dataclass(frozen=True)
class TokenLayout:
    """The vocabulary of a task's tokens."""

    height: int  # of the window
    width: int
    features: tuple[str, ...]  # names, by id
    scales: tuple[float, ...]  # divisors of values
    tags: int  # kinds of objects
    tokens: int  # K, tokens per observation

    def __post_init__(self):
        if not self.tokens >= 1:
            raise ConfigError(f"max_tokens is {self.tokens}; it must be at least 1")
        if max(self.height, self.width) > 15:
            raise ConfigError(f"the window is {self.height} × {self.width}; it may have up to 15 × 15 cells")
        if len(self.features) > 255:
            raise ConfigError(f"the task has {len(self.features)} features of tokens; at most 255 are supported")

    @cached_property
    def tables(self) -> "Tables":
        base = np.full((256, 256), -1, np.int32)
        levels = np.ones((256, 256), np.int32)
        places = [row << 4 | column for row in range(self.height) for column in range(self.width)]
        near = {(self.height // 2) << 4 | self.width // 2, NOWHERE}
        count = 0
        for place in (*places, NOWHERE):
            for feature, name in enumerate(self.features):
                small = place in near and name not in _LINEAR
                n = max(self.tags, 1) if name == _TAG else _LEVELS if small else 1
                base[place, feature], levels[place, feature] = count, n
                count += n
        weight = np.ones((256, 256), np.float32)
        value = np.arange(256)
        for feature, (name, scale) in enumerate(zip(self.features, self.scales, strict=True)):
            weight[feature] = value / scale if name in _LINEAR else np.log2(1 + value) / 8
        return Tables(base, levels, weight, count)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of an observation."""
        return self.tokens, 3

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8

    def cut(self, rows: Tensor) -> Tensor:
        """The first K tokens of rows (n, O), as (n, K, 3)."""
        return rows[:, : 3 * self.tokens].unflatten(1, (-1, 3))

    @property
    def channels(self) -> int:
        """Channels of an image of the window: one per feature and one per kind of object."""
        return len(self.features) + self.tags


@dataclass(frozen=True)
class Tables:
    """Embedding rows and weights by byte values."""

    base: NDArray[np.int32]  # (place, feature): first row, −1 if the pair has no meaning
    levels: NDArray[np.int32]  # (place, feature): number of rows, one for each value; 1 if the value scales the row
    weight: NDArray[np.float32]  # (feature, value)
    rows: int  # R


@kernel
def bag_rows(tokens, base, levels, weight, rows, weights, offsets):
    """Writes rows and weights of all tokens of (h, b, K, 3), list after list in that order; returns their number."""
    count = 0
    b = tokens.shape[1]
    for t in range(tokens.shape[0]):
        for i in range(b):
            offsets[t * b + i] = count
            for k in range(tokens.shape[2]):
                place = tokens[t, i, k, 0]
                if place == END:
                    break
                feature, value = tokens[t, i, k, 1], np.int32(tokens[t, i, k, 2])
                first, n = base[place, feature], levels[place, feature]
                if first < 0:
                    continue
                rows[count] = first + (min(value, n - 1) if n > 1 else 0)
                weights[count] = np.float32(1) if n > 1 else weight[feature, value]
                count += 1
    offsets[tokens.shape[0] * b] = count
    return count


_COLUMNS = 16  # per thread of every row: a cache line


@kernel(parallel=True, numerics=True)
def bag_gradient(rows, weights, offsets, upstream, gradient):
    """Adds the gradient of the sums, (B, H), to that of the table, (R, H); each thread has its own columns."""
    parts = -(-upstream.shape[1] // _COLUMNS)
    for part in numba.prange(parts):
        _bag_columns(rows, weights, offsets, upstream, gradient, part * _COLUMNS)


@routine
def _bag_columns(rows, weights, offsets, upstream, gradient, start):
    stop = min(start + _COLUMNS, upstream.shape[1])
    for i in range(upstream.shape[0]):
        above = upstream[i, start:stop]
        for k in range(offsets[i], offsets[i + 1]):
            mine = gradient[rows[k], start:stop]
            w = weights[k]
            for c in range(stop - start):
                mine[c] += w * above[c]


def _sums(table: Tensor, rows: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
    return F.embedding_bag(rows, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True)


class _Bag(torch.autograd.Function):
    """Weighted sums of table rows on the CPU; torch's own backward sorts all rows first and takes six times as long."""

    @staticmethod
    def forward(ctx, table: Tensor, rows: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:  # pyright: ignore
        ctx.save_for_backward(rows, weights, offsets)
        ctx.shape = table.shape
        return _sums(table, rows, weights, offsets)

    @staticmethod
    def backward(ctx, upstream: Tensor):  # pyright: ignore
        rows, weights, offsets = (x.numpy() for x in ctx.saved_tensors)
        gradient = torch.zeros(ctx.shape)
        bag_gradient(rows, weights, offsets, upstream.float().contiguous().numpy(), gradient.numpy())
        return gradient, None, None, None


class _DeviceBag(torch.autograd.Function):
    """Weighted sums of table rows on a GPU, straight from the tokens (B, K, 3)."""

    @staticmethod
    def forward(ctx, table: Tensor, bias: Tensor, tokens: Tensor, *tables: Tensor) -> Tensor:  # pyright: ignore
        from cavalcade.policy.bag_cuda import bag_sums

        ctx.save_for_backward(tokens, *tables)
        ctx.shape = table.shape
        sums = torch.empty(len(tokens), table.shape[1], device=table.device)
        Launcher(table.device)(bag_sums, sums.numel(), tokens, *tables, table, bias, sums)
        return sums

    @staticmethod
    def backward(ctx, upstream: Tensor):  # pyright: ignore
        from cavalcade.policy.bag_cuda import bag_back

        tokens, *tables = ctx.saved_tensors
        upstream = upstream.float().contiguous()
        gradient = torch.zeros(ctx.shape, dtype=torch.int64, device=upstream.device)
        Launcher(upstream.device)(bag_back, upstream.numel(), tokens, *tables, upstream, gradient)
        return (gradient.double() / ONE).float(), upstream.sum(0), None, None, None, None


class TokenBag(torch.nn.Module):
    """The sum of the embeddings of all tokens, (h, b, K, 3) → (h, b, H)."""

    def __init__(self, layout: TokenLayout, width: int):
        super().__init__()
        self.layout = layout
        self.table = torch.nn.Parameter(torch.randn(layout.tables.rows, width) * 0.1)
        self.bias = torch.nn.Parameter(torch.zeros(width))
        self._plain = PlainRows(layout)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compiled kernels on the CPU and on a GPU."""
        if tokens.is_cuda:
            flat = tokens.flatten(0, 1)
            tables = tuple(getattr(self._plain, name).view(256, 256) for name in ("base", "levels", "weight"))
            sums: Tensor = _DeviceBag.apply(self.table, self.bias, flat, *tables)  # pyright: ignore
            return sums.view(*tokens.shape[:2], -1)
        h, b, k, _ = tokens.shape
        rows, weights = torch.empty(h * b * k, dtype=torch.int32), torch.empty(h * b * k)
        offsets = torch.empty(h * b + 1, dtype=torch.int32)
        t = self.layout.tables
        count = bag_rows(tokens.numpy(), t.base, t.levels, t.weight, rows.numpy(), weights.numpy(), offsets.numpy())
        given = (self.table, rows[:count], weights[:count], offsets)
        found: Tensor = _Bag.apply(*given) if torch.is_grad_enabled() else _sums(*given)  # pyright: ignore
        return found.view(h, b, -1) + self.bias


class PlainRows(torch.nn.Module):
    """Rows and weights of tokens in plain torch, (…, K, 3) → (…, K) each; invalid tokens have row R, weight 0."""

    base: Tensor
    levels: Tensor
    weight: Tensor

    def __init__(self, layout: TokenLayout):
        super().__init__()
        t = layout.tables
        self.rows = t.rows
        for name in ("base", "levels", "weight"):
            self.register_buffer(name, torch.from_numpy(getattr(t, name)).flatten(), persistent=False)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        place, feature, value = tokens.int().unbind(-1)
        at = place * 256 + feature
        first, n = self.base[at], self.levels[at]
        level = torch.where(n > 1, torch.minimum(value, n - 1), 0)
        known = (place != END) & (first >= 0)
        weight = torch.where(n > 1, 1.0, self.weight[feature * 256 + value])
        return torch.where(known, first + level, self.rows), torch.where(known, weight, 0.0)
