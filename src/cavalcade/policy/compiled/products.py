"""Matrix products on one thread, C += A B, for kernels that work on small tiles.

B is packed: panels of as many columns as a cache line holds, each row by row (`panels_of`). Blocks of 6 rows of C and
one panel stay in registers for the whole inner dimension. Libraries repack B in every call, which costs most for the
tiles of 24 to 48 rows that a recurrent core has.

Every element of C is one chain of fused multiply-adds over the inner dimension, in order: results do not depend on how
rows are divided into tiles or threads.
"""

from typing import Any

from llvmlite import ir
from numba import types
from torch import Tensor

from cavalcade.core.jit import routine
from cavalcade.policy.compiled.vectors import LINE, Lines, Loop, intrinsic

_ROWS = 6  # of a block: 12 of the 16 vector registers of AVX2


def panels_of(b: Tensor) -> Tensor:
    """A matrix (K, N) in panels, flat; N must be a multiple of a panel's columns."""
    return b.unflatten(1, (-1, LINE // b.element_size())).transpose(0, 1).reshape(-1)


def _block(rows: int) -> Any:
    """A function that adds the product of `rows` rows of A and one panel to C."""

    @intrinsic
    def block(_typing, a, a_at, row, step, b, b_at, c, c_at, c_row, depth):
        """A: (r, k) at a_at + r·row + k·step of `a`. B: a panel at b_at. C: rows of c_row elements from c_at."""
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

            a_rows, c_rows = [nth(a, row, r) for r in range(rows)], [nth(c, c_row, r) for r in range(rows)]
            loop = Loop(builder, depth, [lines.load(x) for x in c_rows])
            panel, at = lines.load(nth(b, loop.k, lines.size)), builder.mul(loop.k, step)
            values = [lines.filled(builder.load(builder.gep(x, [at]))) for x in a_rows]
            sums = [lines.add_product(c, x, panel) for c, x in zip(loop.carried, values, strict=True)]
            for x, target in zip(loop.close(sums), c_rows, strict=True):
                lines.store(x, target)
            return context.get_dummy_value()

        return signature, codegen

    return block


_one, _two, _three, _four, _five, _six = (_block(rows) for rows in range(1, _ROWS + 1))


@routine
def add_product(a, a_at, row, step, rows, depth, packed, c, c_at, c_row, columns):
    """Adds the product of A (rows, depth) and a packed matrix (depth, columns) to C; see `block` for the addresses."""
    size = LINE // a.itemsize
    for j in range(0, columns, size):
        panel = j * depth
        for r in range(0, rows - _ROWS + 1, _ROWS):
            _six(a, a_at + r * row, row, step, packed, panel, c, c_at + r * c_row + j, c_row, depth)
        left = rows % _ROWS
        a_last, c_last = a_at + (rows - left) * row, c_at + (rows - left) * c_row + j
        if left == 1:
            _one(a, a_last, row, step, packed, panel, c, c_last, c_row, depth)
        elif left == 2:
            _two(a, a_last, row, step, packed, panel, c, c_last, c_row, depth)
        elif left == 3:
            _three(a, a_last, row, step, packed, panel, c, c_last, c_row, depth)
        elif left == 4:
            _four(a, a_last, row, step, packed, panel, c, c_last, c_row, depth)
        elif left == 5:
            _five(a, a_last, row, step, packed, panel, c, c_last, c_row, depth)
