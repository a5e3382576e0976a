"""A sum over the rows of a task that does not depend on their order: the same rows give the same sum.

Called by exactly_once.py. A replayed task is skipped only if its rows are those that were written, and Spark may bring
them in another order. 64 bits of accident, no defence against malice. Keys and values count; null is not empty.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.spark.arrow.compiling import compiled, inlined

if TYPE_CHECKING:
    import pyarrow as pa

_PRIME = np.uint64(0x9E3779B97F4A7C15)
_OTHER_PRIME = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_NO_BYTES = np.empty(0, np.uint8)
_NO_OFFSETS = np.zeros(1, np.int32)


class RowDigest:
    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, key: "pa.Array[Any] | None", value: "pa.Array[Any]") -> None:
        """Both are binary arrays, of short or long offsets, of one length."""
        self.rows += len(value)
        added = _sum_of_hashes(len(value), key is not None, *_buffers(key), *_buffers(value))
        self._sum = (self._sum + int(added)) & 0xFFFFFFFFFFFFFFFF

    @property
    def text(self) -> str:
        return f"{self._sum:016x}"


def warm_up() -> None:
    """Compile, or load what was compiled, so that no transaction is open meanwhile."""
    import pyarrow as pa

    RowDigest().add(None, pa.array([b""], pa.binary()))


def _buffers(column: "pa.Array[Any] | None") -> tuple[Any, Any, Any, int]:
    """Offsets, data, validity bits and where the first of those is. No bits: no nulls."""
    if column is None:
        return _NO_OFFSETS, _NO_BYTES, _NO_BYTES, 0
    import pyarrow as pa

    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    bits, offsets, data = column.buffers()
    at = column.offset
    return (
        np.frombuffer(offsets, width)[at : at + len(column) + 1]
        if offsets is not None and offsets.size
        else _NO_OFFSETS,
        np.frombuffer(data, np.uint8) if data is not None else _NO_BYTES,
        np.frombuffer(bits, np.uint8) if bits is not None and column.null_count else _NO_BYTES,
        at,
    )


@inlined
def _mixed(seed: Any, data: Any, start: int, end: int) -> Any:
    state = seed
    at = start
    while at + 8 <= end:
        # Eight bytes put together so are one load to the compiler.
        word = (
            np.uint64(data[at])
            | np.uint64(data[at + 1]) << np.uint64(8)
            | np.uint64(data[at + 2]) << np.uint64(16)
            | np.uint64(data[at + 3]) << np.uint64(24)
            | np.uint64(data[at + 4]) << np.uint64(32)
            | np.uint64(data[at + 5]) << np.uint64(40)
            | np.uint64(data[at + 6]) << np.uint64(48)
            | np.uint64(data[at + 7]) << np.uint64(56)
        )
        state = (state ^ word) * _PRIME
        state ^= state >> np.uint64(29)
        at += 8
    while at < end:
        state = (state ^ np.uint64(data[at])) * _PRIME
        state ^= state >> np.uint64(29)
        at += 1
    state = (state ^ np.uint64(end - start)) * _OTHER_PRIME
    return state ^ (state >> np.uint64(32))


@compiled
def _sum_of_hashes(
    rows: int,
    has_key: bool,
    key_offsets: Any,
    key_data: Any,
    key_bits: Any,
    key_at: int,
    value_offsets: Any,
    value_data: Any,
    value_bits: Any,
    value_at: int,
) -> Any:
    total = np.uint64(0)
    for row in range(rows):
        state = _NULL
        bit = key_at + row
        if has_key and (len(key_bits) == 0 or (key_bits[bit >> 3] >> (bit & 7)) & 1):
            state = _mixed(_PRIME, key_data, key_offsets[row], key_offsets[row + 1])
        bit = value_at + row
        if len(value_bits) == 0 or (value_bits[bit >> 3] >> (bit & 7)) & 1:
            state = _mixed(state, value_data, value_offsets[row], value_offsets[row + 1])
        else:
            # No key and no value must still be a row: what is added for one is never 0 by construction.
            state = (state ^ _PRIME) * _OTHER_PRIME
        total += state
    return total
