"""Sums of embeddings on a GPU: one thread for each observation and column. See `tokens`."""

import numpy as np

from cavalcade.core.cuda import cuda, gpu_kernel
from cavalcade.policy.bag import ONE, token_row


@gpu_kernel
def bag_sums(count, tokens, base, levels, weight, table, bias, sums):
    """Sums of table rows of tokens (B, K, 3), and the bias, into (B, H)."""
    i = cuda.grid(1)
    if i < count:
        width = table.shape[1]
        b, c = i // width, i % width
        total = bias[c]
        for k in range(tokens.shape[1]):
            if tokens[b, k, 0] == 255:
                break
            row, scale = token_row(tokens, base, levels, weight, b, k)
            if row >= 0:
                total += scale * table[row, c]
        sums[b, c] = total


@gpu_kernel
def bag_back(count, tokens, base, levels, weight, upstream, gradient):
    """Adds the gradient of the sums (B, H) to that of the table (R, H), in units of 1 / ONE.

    Whole numbers, so that the order of the additions does not matter and results repeat.
    """
    i = cuda.grid(1)
    if i < count:
        width = gradient.shape[1]
        b, c = i // width, i % width
        above = np.float64(upstream[b, c]) * ONE
        for k in range(tokens.shape[1]):
            if tokens[b, k, 0] == 255:
                break
            row, scale = token_row(tokens, base, levels, weight, b, k)
            if row >= 0:
                cuda.atomic.add(gradient, (row, c), np.int64(above * scale))
