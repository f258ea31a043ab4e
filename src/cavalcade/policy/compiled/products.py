"""Matrix products on one thread, C += A B, for kernels that work on small tiles.

B is packed: panels of as many columns as a cache line holds, each row by row (`panels_of`). Blocks of C stay in
registers for the whole inner dimension: 8 rows and two panels with the 32 registers of AVX-512, else 6 rows and one
panel. Libraries repack B in every call, which costs most for the tiles of 24 to 48 rows that a recurrent core has.

Every element of C is one chain of fused multiply-adds over the inner dimension, in order: results do not depend on
blocks, nor on how rows are divided into tiles or threads.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from cavalcade.core.jit import kernel, routine
from cavalcade.policy.compiled.vectors import LINE, WIDE, Lines, Loop, intrinsic

_ROWS, _PANELS = (8, 2) if WIDE else (6, 1)  # of a block: 16 of 32 registers, or 12 of 16


def panels_of(b: NDArray) -> NDArray:
    """A matrix (K, N) in panels, flat; N must be a multiple of a panel's columns."""
    size = LINE // b.itemsize
    panels = np.empty((b.shape[1] // size, len(b), size), b.dtype)
    _pack(b, panels)
    return panels.reshape(-1)


@kernel
def _pack(b, panels):
    for j in range(panels.shape[0]):
        for k in range(panels.shape[1]):
            for c in range(panels.shape[2]):
                panels[j, k, c] = b[k, j * panels.shape[2] + c]


def _block(rows: int, panels: int) -> Any:
    """A function that adds the product of `rows` rows of A and some panels to C."""

    @intrinsic
    def block(_typing, a, a_at, row, step, b, b_at, c, c_at, c_row, depth):
        """A: (r, k) at a_at + r·row + k·step of `a`. B: panels from b_at on. C: rows of c_row elements from c_at."""
        whole = types.intp
        signature = types.void(a, whole, whole, whole, b, whole, c, whole, whole, whole)

        def codegen(context, builder, signature, arguments):
            a, a_at, row, step, b, b_at, c, c_at, c_row, depth = arguments
            lines = Lines(context, builder, signature.args[0])
            a, b, c = (
                lines.address(signature.args[i], x, at) for i, x, at in ((0, a, a_at), (4, b, b_at), (6, c, c_at))
            )

            def nth(start, stride, n):
                return builder.gep(start, [builder.mul(stride, ir.Constant(stride.type, n))])

            line = ir.Constant(depth.type, lines.size)
            b_panels = [nth(b, builder.mul(depth, line), p) for p in range(panels)]
            a_rows = [nth(a, row, r) for r in range(rows)]
            targets = [nth(nth(c, c_row, r), line, p) for r in range(rows) for p in range(panels)]
            loop = Loop(builder, depth, [lines.load(x) for x in targets])
            at = builder.mul(loop.k, step)
            found = [lines.load(builder.gep(x, [builder.mul(loop.k, line)])) for x in b_panels]
            values = [lines.filled(builder.load(builder.gep(x, [at]))) for x in a_rows]
            pairs = [(x, y) for x in values for y in found]
            sums = [lines.add_product(total, x, y) for total, (x, y) in zip(loop.carried, pairs, strict=True)]
            for x, target in zip(loop.close(sums), targets, strict=True):
                lines.store(x, target)
            return context.get_dummy_value()

        return signature, codegen

    return block


def _strip(panels: int) -> Any:
    """A function that adds the product of A and some panels of B to as many panels of columns of C."""
    most, four, two, one = (_block(rows, panels) for rows in (_ROWS, 4, 2, 1))

    @routine
    def strip(a, a_at, row, step, rows, depth, packed, panel, c, c_at, c_row):
        r = 0
        while r + _ROWS <= rows:
            most(a, a_at + r * row, row, step, packed, panel, c, c_at + r * c_row, c_row, depth)
            r += _ROWS
        if r + 4 <= rows:
            four(a, a_at + r * row, row, step, packed, panel, c, c_at + r * c_row, c_row, depth)
            r += 4
        if r + 2 <= rows:
            two(a, a_at + r * row, row, step, packed, panel, c, c_at + r * c_row, c_row, depth)
            r += 2
        if r < rows:
            one(a, a_at + r * row, row, step, packed, panel, c, c_at + r * c_row, c_row, depth)

    return strip


_panels, _panel = _strip(_PANELS), _strip(1)


@routine
def add_product(a, a_at, row, step, rows, depth, packed, c, c_at, c_row, columns):
    """Adds the product of A (rows, depth) and a packed matrix (depth, columns) to C; see `block` for the addresses."""
    size = LINE // a.itemsize
    j = 0
    while j + _PANELS * size <= columns:
        _panels(a, a_at, row, step, rows, depth, packed, j * depth, c, c_at + j, c_row)
        j += _PANELS * size
    while j < columns:
        _panel(a, a_at, row, step, rows, depth, packed, j * depth, c, c_at + j, c_row)
        j += size
