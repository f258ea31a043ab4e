"""Weighted sums of table rows, and their gradient."""

from typing import Any

from llvmlite import ir
from numba import types

from cavalcade.core.jit import formula
from cavalcade.policy.compiled.vectors import LINE, Lines, Loop, intrinsic

TOGETHER = 4  # cache lines that stay in registers


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


_one_line, _four_lines = _sum(1), _sum(TOGETHER)


def _spread(count: int) -> Any:
    """A function that adds w_k times `count` cache lines of a vector to table[rows_k]."""

    @intrinsic
    def add_to_rows(_typing, table, columns, rows, weights, list_at, length, column, vector, vector_at):
        """The arguments of `add_lines`; the vector's lines begin at vector_at."""
        whole = types.intp
        signature = types.void(table, whole, rows, weights, whole, whole, whole, vector, whole)

        def codegen(context, builder, signature, arguments):
            table, columns, rows, weights, list_at, length, column, vector, vector_at = arguments
            kinds = signature.args
            lines = Lines(context, builder, kinds[0])
            table = lines.address(kinds[0], table, column)
            rows, weights = lines.address(kinds[2], rows, list_at), lines.address(kinds[3], weights, list_at)
            vector = lines.address(kinds[7], vector, vector_at)

            def nth(start, n):
                return builder.gep(start, [ir.Constant(column.type, n * lines.size)])

            above = [lines.load(nth(vector, n)) for n in range(count)]
            loop = Loop(builder, length, [])
            row = builder.sext(builder.load(builder.gep(rows, [loop.k])), column.type)
            here = builder.gep(table, [builder.mul(row, columns)])
            weight = lines.filled(builder.load(builder.gep(weights, [loop.k])))
            sums = [lines.add_product(lines.load(nth(here, n)), weight, x) for n, x in enumerate(above)]
            for n, x in enumerate(sums):
                lines.store(x, nth(here, n))
            loop.close([])
            return context.get_dummy_value()

        return signature, codegen

    return add_to_rows


_spread_line, _spread_lines = _spread(1), _spread(TOGETHER)


@formula
def spread(table, rows, weights, length, vectors, row, column, count):
    """Adds w_k times a row of `vectors` to table[rows_k] over the first `length` of its list, in `count` columns.

    count: `TOGETHER` cache lines, or one.
    """
    columns, at, vector_at = table.shape[1], row * rows.shape[1], row * vectors.shape[1] + column
    if count == LINE // table.itemsize:
        _spread_line(table, columns, rows, weights, at, length, column, vectors, vector_at)
    else:
        _spread_lines(table, columns, rows, weights, at, length, column, vectors, vector_at)


@formula
def add_sum(table, rows, weights, length, into, row):
    """Adds Σ w_k table[rows_k] over the first `length` of a row of lists to the same row of `into`."""
    columns, size = table.shape[1], LINE // table.itemsize
    at, into_at = row * rows.shape[1], row * into.shape[1]
    j = 0
    while j + TOGETHER * size <= columns:
        _four_lines(table, columns, rows, weights, at, length, j, into, into_at + j)
        j += TOGETHER * size
    while j + size <= columns:
        _one_line(table, columns, rows, weights, at, length, j, into, into_at + j)
        j += size
    if j < columns:
        for k in range(length):
            for left in range(j, columns):
                into[row, left] += weights[row, k] * table[rows[row, k], left]
