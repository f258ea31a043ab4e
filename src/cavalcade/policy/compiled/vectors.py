"""LLVM code for whole cache lines of numbers, where loops over elements are not vectorised: arrays might overlap."""

from typing import Any

from llvmlite import binding, ir
from numba import extending, types

LINE = 64  # bytes: 16 float32, 8 float64
WIDE: bool = binding.get_host_cpu_features().get("avx512f", False)
"""Whether there are 32 registers of one line; else there are 16, and a line takes two."""
intrinsic: Any = extending.intrinsic  # its type hints count the typing context among the arguments


class Lines:
    """Emits loads, stores and multiply-adds of cache lines of arrays of one number type."""

    def __init__(self, context: Any, builder: Any, kind: Any):
        self._context, self._builder = context, builder
        self.align = kind.dtype.bitwidth // 8
        self.size = LINE // self.align
        self.type = ir.VectorType(context.get_data_type(kind.dtype), self.size)

    def address(self, kind: Any, array: Any, at: Any) -> Any:
        """The address of an element of an array."""
        return self._builder.gep(self._context.make_array(kind)(self._context, self._builder, array).data, [at])

    def load(self, address: Any) -> Any:
        return self._builder.load(self._builder.bitcast(address, self.type.as_pointer()), align=self.align)

    def store(self, line: Any, address: Any) -> None:
        self._builder.store(line, self._builder.bitcast(address, self.type.as_pointer()), align=self.align)

    def filled(self, number: Any) -> Any:
        """A line of one number."""
        whole, undefined = ir.IntType(32), ir.Constant(self.type, ir.Undefined)
        one = self._builder.insert_element(undefined, number, ir.Constant(whole, 0))
        zeros = ir.Constant(ir.VectorType(whole, self.size), [0] * self.size)
        return self._builder.shuffle_vector(one, undefined, zeros)

    def add_product(self, total: Any, x: Any, y: Any) -> Any:
        """The fused sum total + x y."""
        product = self._builder.fmul(x, y, flags=("contract",))
        return self._builder.fadd(total, product, flags=("contract",))


class Loop:
    """A loop over k = 0 … count − 1 that carries values; `close` ends it and gives them back."""

    def __init__(self, builder: Any, count: Any, carried: list[Any]):
        self._builder, self._count, self._first = builder, count, carried
        zero = ir.Constant(count.type, 0)
        self._entry, self._body = builder.block, builder.append_basic_block()
        self._done = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed(">", count, zero), self._body, self._done)
        builder.position_at_end(self._body)
        self.k = builder.phi(count.type)
        self.k.add_incoming(zero, self._entry)
        self.carried = [self._phi(x) for x in carried]

    def _phi(self, first: Any) -> Any:
        phi = self._builder.phi(first.type)
        phi.add_incoming(first, self._entry)
        return phi

    def close(self, after: list[Any]) -> list[Any]:
        """Ends the loop; `after` replaces the carried values in each round."""
        builder = self._builder
        k = builder.add(self.k, ir.Constant(self.k.type, 1))
        builder.cbranch(builder.icmp_signed("<", k, self._count), self._body, self._done)
        for phi, value in zip((self.k, *self.carried), (k, *after), strict=True):
            phi.add_incoming(value, self._body)
        builder.position_at_end(self._done)
        found = [self._phi(x) for x in self._first]
        for phi, value in zip(found, after, strict=True):
            phi.add_incoming(value, self._body)
        return found


@intrinsic
def copy_line(_typing, array, at, into, into_at):
    """Copies one cache line of an array to another."""
    signature = types.void(array, types.intp, into, types.intp)

    def codegen(context, builder, signature, arguments):
        array, at, into, into_at = arguments
        lines = Lines(context, builder, signature.args[0])
        line = lines.load(lines.address(signature.args[0], array, at))
        lines.store(line, lines.address(signature.args[2], into, into_at))
        return context.get_dummy_value()

    return signature, codegen
