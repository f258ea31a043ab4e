"""Records of arrays in parallel loops, passed by address.

Numba passes every array of a named tuple to a parallel loop on its own; with dozens of arrays, most of the time to
compile a kernel went there. `address` before the loop and `record_at` in the function that it calls leave one argument.
"""

from typing import Any

from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from cavalcade.core.jit import config


def _address(_typing: Any, record: Any) -> Any:
    """Where a record is in memory, until the kernel that calls this returns."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return cgutils.alloca_once_value(builder, args[0])

    return types.CPointer(record)(record), generate


def _record_at(_typing: Any, address: Any) -> Any:
    """The record at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return impl_ret_borrowed(context, builder, signature.return_type, builder.load(args[0]))

    return address.dtype(address), generate


def _itself(record: Any) -> Any:
    """Without compilation, a record stands for its address."""
    return record


address: Any = _itself if config.DISABLE_JIT else intrinsic(_address)
record_at: Any = _itself if config.DISABLE_JIT else intrinsic(_record_at)
