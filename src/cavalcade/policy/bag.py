"""The embedding row and weight of a token, for kernels."""

import numpy as np

from cavalcade.core.jit import formula

ONE = 2.0**40  # units of a gradient


@formula
def token_row(tokens, base, levels, weight, b, k):
    """Row and weight of token k of list b, (B, K, 3); row −1 if it has no meaning."""
    place, feature, value = np.int64(tokens[b, k, 0]), np.int64(tokens[b, k, 1]), np.int64(tokens[b, k, 2])
    first, n = np.int64(base[place, feature]), np.int64(levels[place, feature])
    if n > 1:
        return first + min(value, n - 1) if first >= 0 else np.int64(-1), np.float32(1)
    return first, weight[feature, value]
