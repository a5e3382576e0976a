"""The five bytes before a value that say which schema wrote it: a zero, then the schema's id.

Called by whoever reads or writes values of a schema registry. Law: split_frame(join_frame(id, x)) == (id, x).
"""

import struct

_FRAME = struct.Struct(">bi")
_MAGIC = 0
FRAME_BYTES = _FRAME.size


def split_frame(value: memoryview) -> tuple[int, memoryview] | None:
    """The schema id and the payload after it (no copy); None where `value` is no framed one."""
    if len(value) < FRAME_BYTES:
        return None
    magic, schema_id = _FRAME.unpack_from(value)
    # Registries give ids from 1: a negative one means that these are other bytes which happen to begin with a zero.
    if magic != _MAGIC or schema_id < 0:
        return None
    return schema_id, value[FRAME_BYTES:]


def join_frame(schema_id: int, payload: bytes) -> bytes:
    return _FRAME.pack(_MAGIC, schema_id) + payload
