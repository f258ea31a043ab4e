"""Weighted sums of table rows, and their gradient."""

from typing import Any

from llvmlite import ir
from numba import types

from cavalcade.core.jit import formula
from cavalcade.policy.compiled.vectors import LINE, Lines, Loop, intrinsic

_TOGETHER = 4  # cache lines of a sum that stay in registers


def _sum(count: int) -> Any:
    """A function that adds Σ w_k table[rows_k] to a vector, `count` cache lines of it."""

    @intrinsic
    def add_lines(_typing, table, columns, rows, weights, list_at, length, column, into, into_at):
        """Table rows have `columns` elements, lines begin at `column`; rows and weights begin at list_at."""
        whole = types.intp
        signature = types.void(table, whole, rows, weights, whole, whole, whole, into, whole)

        def codegen(context, builder, signature, arguments):
            table, columns, rows, weights, list_at, length, column, into, into_at = arguments
            kinds = signature.args
            lines = Lines(context, builder, kinds[0])
            table = lines.address(kinds[0], table, column)
            rows, weights = lines.address(kinds[2], rows, list_at), lines.address(kinds[3], weights, list_at)
            into = lines.address(kinds[7], into, into_at)

            def nth(start, n):
                return builder.gep(start, [ir.Constant(column.type, n * lines.size)])

            loop = Loop(builder, length, [lines.load(nth(into, n)) for n in range(count)])
            row = builder.sext(builder.load(builder.gep(rows, [loop.k])), column.type)
            here = builder.gep(table, [builder.mul(row, columns)])
            weight = lines.filled(builder.load(builder.gep(weights, [loop.k])))
            sums = [lines.add_product(x, weight, lines.load(nth(here, n))) for n, x in enumerate(loop.carried)]
            for n, x in enumerate(loop.close(sums)):
                lines.store(x, nth(into, n))
            return context.get_dummy_value()

        return signature, codegen

    return add_lines


_one_line, _four_lines = _sum(1), _sum(_TOGETHER)


@intrinsic
def add_to_rows(_typing, table, rows, weights, list_at, length, line, line_at):
    """Adds w_k times a cache line to rows_k of a table of one line per row, for k < length."""
    whole = types.intp
    signature = types.void(table, rows, weights, whole, whole, line, whole)

    def codegen(context, builder, signature, arguments):
        table, rows, weights, list_at, length, line, line_at = arguments
        kinds = signature.args
        lines = Lines(context, builder, kinds[0])
        start = lines.address(kinds[0], table, ir.Constant(list_at.type, 0))
        rows, weights = lines.address(kinds[1], rows, list_at), lines.address(kinds[2], weights, list_at)
        above = lines.load(lines.address(kinds[5], line, line_at))
        loop = Loop(builder, length, [])
        row = builder.sext(builder.load(builder.gep(rows, [loop.k])), list_at.type)
        here = builder.gep(start, [builder.mul(row, ir.Constant(row.type, lines.size))])
        weight = lines.filled(builder.load(builder.gep(weights, [loop.k])))
        lines.store(lines.add_product(lines.load(here), weight, above), here)
        loop.close([])
        return context.get_dummy_value()

    return signature, codegen


@formula
def add_sum(table, rows, weights, length, into, row):
    """Adds Σ w_k table[rows_k] over the first `length` of a row of lists to the same row of `into`."""
    columns, size = table.shape[1], LINE // table.itemsize
    at, into_at = row * rows.shape[1], row * into.shape[1]
    j = 0
    while j + _TOGETHER * size <= columns:
        _four_lines(table, columns, rows, weights, at, length, j, into, into_at + j)
        j += _TOGETHER * size
    while j + size <= columns:
        _one_line(table, columns, rows, weights, at, length, j, into, into_at + j)
        j += size
    if j < columns:
        for k in range(length):
            for left in range(j, columns):
                into[row, left] += weights[row, k] * table[rows[row, k], left]
