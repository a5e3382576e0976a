"""numba's compiler, and the three things its language has no word for: an address, a byte there, a copy of bytes.

Used by arrow.kernels alone, at import. Compiling takes seconds and loading from the cache a tenth of one, so the cache
is worth having; but an installation may be read-only and its user without a home, and then decoding still has to work.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.spark.arrow.errors import NoNumba

try:
    from llvmlite import ir
    from numba import njit
    from numba.core import cgutils, types
    from numba.extending import intrinsic
except ImportError as failure:
    raise NoNumba(str(failure)) from failure

Function = TypeVar("Function", bound=Callable[..., object])
Emit = Callable[[Any, Any, Any, Any], Any]

_BYTE = ir.IntType(8)
_INT64 = ir.IntType(64)


def compiled(function: Function) -> Function:
    """The function in machine code; it lets go of the interpreter lock, so that fetching goes on meanwhile."""
    try:
        return cast(Function, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        # "cannot cache function": neither beside the source nor in the user's cache folder can anything be written.
        return cast(Function, njit(nogil=True)(function))


def inlined(function: Function) -> Function:
    """For what compiled functions call once or more per record; it is kept within them, so it needs no cache."""
    return cast(Function, njit(forceinline=True)(function))


def _address_of(_context: Any, array: Any) -> tuple[Any, Emit]:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _INT64)

    return types.int64(array), emit


def _byte_at(_context: Any, address: Any, index: Any) -> tuple[Any, Emit]:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(builder.add(*arguments), _BYTE.as_pointer())
        return builder.zext(builder.load(place), _INT64)

    return types.int64(types.int64, types.int64), emit


def _move(_context: Any, source: Any, target: Any, size: Any) -> tuple[Any, Emit]:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from_, to = (builder.inttoptr(address, _BYTE.as_pointer()) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, from_, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


# Nothing here checks anything: whoever calls them has.
address_of = cast("Callable[[Any], int]", intrinsic(_address_of))
byte_at = cast("Callable[[int, int], int]", intrinsic(_byte_at))
move = cast("Callable[[int, int, int], None]", intrinsic(_move))
