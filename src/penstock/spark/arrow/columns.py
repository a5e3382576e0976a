"""The columns of one Arrow batch while they are filled, and the batch once they are.

Called by arrow.decoder.
Laws:
- Every column is an array that Arrow takes over as it is; after `take` the next batch gets new ones.
- Data columns grow by what a checked record needs, never by what an unchecked length says.
- No data column passes 2 GiB, where Arrow's int32 offsets end: a batch is cut at `bytes_max`, and one record that is
  larger is a batch of its own, no larger than what it was unfolded to.
"""

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from penstock.spark.arrow import kernels as k
from penstock.spark.arrow.schema import HEADERS_TYPE, RAW_SCHEMA, RAW_SCHEMA_WITH_HEADERS

if TYPE_CHECKING:
    from penstock.spark.arrow.kernels import Bytes, Int32s, Int64s

BATCH_BYTES_MAX = 64 * 1024 * 1024
_FIRST_ROW_BYTES = 128
_FIRST_DATA_BYTES_MAX = 4 * 1024 * 1024
_ASCII_MAX = 0x7F


class Columns:
    def __init__(self, topic: str, partition: int, rows_max: int, *, has_headers: bool, bytes_max: int) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._has_headers = has_headers
        self._schema = RAW_SCHEMA_WITH_HEADERS if has_headers else RAW_SCHEMA
        # The same in every row: made once, and cut to the length of each batch without a copy.
        self._topics = pa.array([topic], pa.string()).take(pa.array(np.zeros(rows_max, np.int8)))
        self._partitions = pa.array(np.full(rows_max, partition, np.int32))
        guess = min(rows_max * _FIRST_ROW_BYTES, _FIRST_DATA_BYTES_MAX)
        # Room for keys, values, header names and header values: what the last batch took is a good guess for the next.
        self._room = [guess // 4, guess, 0, 0]
        self._header_room = 0
        self.state = np.zeros(k.STATE_SLOTS, np.int64)
        self._begin()

    @property
    def rows(self) -> int:
        return int(self.state[k.ROWS])

    def enter(self) -> None:
        """New spans come: stand at the first record of the first one."""
        self.state[: k.PREVIOUS_DELTA + 1] = 0

    def fill(self, data: "Bytes", spans: "Int64s", first_offset: int, end_offset: int) -> int:
        """As the kernel's; grows what is too small, so MORE_ROOM never comes out."""
        while True:
            result = k.fill(
                data,
                spans,
                self.state,
                first_offset,
                end_offset,
                self._bytes_max,
                self._has_headers,
                self._key_ends,
                self._keys,
                self._key_validity,
                self._value_ends,
                self._values,
                self._value_validity,
                self._offsets,
                self._times,
                self._time_validity,
                self._time_types,
                self._list_ends,
                self._list_validity,
                self._name_ends,
                self._names,
                self._header_value_ends,
                self._header_values,
                self._header_value_validity,
            )
            if result != k.MORE_ROOM:
                return result
            self._grow()

    def take(self) -> pa.RecordBatch:
        """The rows so far; the columns are empty afterwards."""
        state, rows = self.state, self.rows
        key = _binary(
            pa.binary(), rows, self._key_ends, self._keys, state[k.KEY_BYTES], self._key_validity, state[k.KEY_NULLS]
        )
        value = _binary(
            pa.binary(),
            rows,
            self._value_ends,
            self._values,
            state[k.VALUE_BYTES],
            self._value_validity,
            state[k.VALUE_NULLS],
        )
        time_nulls = int(state[k.TIME_NULLS])
        time_buffers = [_validity(self._time_validity, time_nulls), pa.py_buffer(self._times)]
        columns: list[Any] = [
            key,
            value,
            self._topics.slice(0, rows),
            self._partitions.slice(0, rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self._offsets)], 0),
            pa.Array.from_buffers(pa.timestamp("us", "UTC"), rows, time_buffers, time_nulls),
            pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(self._time_types)], 0),
        ]
        if self._has_headers:
            columns.append(self._take_headers(rows))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        filled = (state[k.KEY_BYTES], state[k.VALUE_BYTES], state[k.NAME_BYTES], state[k.HEADER_BYTES])
        self._room = [_room_after(int(used)) for used in filled]
        self._header_room = _room_after(int(state[k.HEADERS]))
        state[k.ROWS :] = 0
        self._begin()
        return batch

    def _begin(self) -> None:
        rows, bits = self._rows_max, (self._rows_max + 7) // 8
        self._key_ends, self._value_ends = np.empty(rows + 1, np.int32), np.empty(rows + 1, np.int32)
        self._key_ends[0] = self._value_ends[0] = 0
        self._key_validity, self._value_validity = np.zeros(bits, np.uint8), np.zeros(bits, np.uint8)
        self._time_validity = np.zeros(bits, np.uint8)
        self._offsets, self._times = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._time_types = np.empty(rows, np.int32)
        self._keys, self._values, self._names, self._header_values = (np.empty(room, np.uint8) for room in self._room)
        header_rows = rows if self._has_headers else 0
        self._list_ends = np.zeros(header_rows + 1, np.int32)
        self._list_validity = np.zeros((header_rows + 7) // 8, np.uint8)
        self._name_ends = np.zeros(self._header_room + 1, np.int32)
        self._header_value_ends = np.zeros(self._header_room + 1, np.int32)
        self._header_value_validity = np.zeros((self._header_room + 7) // 8, np.uint8)

    def _grow(self) -> None:
        """Room for the record that found none, as the kernel left its needs in the state."""
        state = self.state
        self._keys = _grown(self._keys, state[k.KEY_BYTES], state[k.NEEDS_KEY])
        self._values = _grown(self._values, state[k.VALUE_BYTES], state[k.NEEDS_VALUE])
        self._names = _grown(self._names, state[k.NAME_BYTES], state[k.NEEDS_NAMES])
        self._header_values = _grown(self._header_values, state[k.HEADER_BYTES], state[k.NEEDS_HEADER_VALUES])
        headers, needed = int(state[k.HEADERS]), int(state[k.NEEDS_HEADERS])
        if headers + needed >= len(self._name_ends):
            room = 2 * (headers + needed)
            self._name_ends = _lengthened(self._name_ends, room + 1)
            self._header_value_ends = _lengthened(self._header_value_ends, room + 1)
            self._header_value_validity = _lengthened(self._header_value_validity, (room + 7) // 8)

    def _take_headers(self, rows: int) -> Any:
        state = self.state
        count = int(state[k.HEADERS])
        names = _binary(pa.string(), count, self._name_ends, self._names, state[k.NAME_BYTES], None, 0)
        if count and self._names[: state[k.NAME_BYTES]].max(initial=0) > _ASCII_MAX:
            names = _readable_names(names)
        values = _binary(
            pa.binary(),
            count,
            self._header_value_ends,
            self._header_values,
            state[k.HEADER_BYTES],
            self._header_value_validity,
            state[k.HEADER_NULLS],
        )
        headers = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
        nulls = int(state[k.LIST_NULLS])
        buffers = [_validity(self._list_validity, nulls), pa.py_buffer(self._list_ends)]
        return pa.Array.from_buffers(HEADERS_TYPE, rows, buffers, nulls, children=[headers])


def _binary(
    kind: Any, rows: int, ends: "Int32s", data: "Bytes", used: int, validity: "Bytes | None", nulls: int
) -> Any:
    buffers = [
        None if validity is None else _validity(validity, int(nulls)),
        pa.py_buffer(ends),
        pa.py_buffer(data[: int(used)]),
    ]
    return pa.Array.from_buffers(kind, rows, buffers, int(nulls))


def _validity(bits: "Bytes", nulls: int) -> Any:
    return pa.py_buffer(bits) if nulls else None


def _readable_names(names: Any) -> Any:
    """Header names are any bytes on the wire, and a string column holds UTF-8: the rest is replaced, as in Java."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.view(pa.binary()).to_pylist()
        return pa.array([cast(bytes, name).decode("utf-8", "replace") for name in raw], pa.string())
    return names


def _grown(data: "Bytes", used: int, needed: int) -> "Bytes":
    if needed <= len(data) - used:
        return data
    larger = np.empty(max(2 * len(data), int(used + needed)), np.uint8)
    larger[:used] = data[:used]
    return larger


def _lengthened(values: Any, length: int) -> Any:
    longer = np.zeros(length, values.dtype)
    longer[: len(values)] = values
    return longer


def _room_after(used: int) -> int:
    """An eighth more than was used, so that rows that vary a little need no growing; never a whole cut batch."""
    return min(used + used // 8 + 64 if used else 0, _FIRST_DATA_BYTES_MAX)
