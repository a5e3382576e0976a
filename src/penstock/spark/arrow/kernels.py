"""Record batches walked in machine code: where batches lie in a chunk, and their records into columns.

Called by arrow.batch_list and arrow.columns. Nothing here raises: what does not add up is a number below zero, which
REASONS puts into words.
Laws:
- No byte is read before its place was compared with the end of what it lies in; no index comes unchecked from a batch.
- A record is written whole or not at all: room for all of it is checked first.
- Numbers are int64 throughout: numba makes a float of int64 and uint64 together.
- All that is compiled, and every constant in it, stands in this file: numba's cache looks at the date of one file only,
  and would go on using what was compiled from another's older text.
- What runs once per record takes addresses, not arrays: numba counts references to every array that is passed on, and
  these counts took nine tenths of the time.
"""

from typing import TYPE_CHECKING

import numpy as np

from penstock.spark.arrow.compiling import address_of, byte_at, compiled, inlined, move

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Int32s = NDArray[np.int32]
    Int64s = NDArray[np.int64]

# Columns of the table of batches.
AT, SIZE, BASE_OFFSET, ATTRIBUTES, LAST_DELTA, BASE_TIME, MAX_TIME, PRODUCER, COUNT = range(9)
BATCH_COLUMNS = 9
# Columns of the table of spans: where unfolded records lie, and what their batch says of them.
S_AT, S_END, S_BASE_OFFSET, S_BASE_TIME, S_APPEND_TIME, S_LAST_DELTA, S_COUNT, S_HAS_APPEND_TIME = range(8)
SPAN_COLUMNS = 8
# Slots of the state that goes from call to call: the place in the spans, then what is filled of the columns, then what
# the record that found no room would have needed.
SPAN, RECORD, BYTE, PREVIOUS_DELTA, ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, HEADER_BYTES = range(10)
KEY_NULLS, VALUE_NULLS, TIME_NULLS, HEADER_NULLS, LIST_NULLS = range(10, 15)
NEEDS_KEY, NEEDS_VALUE, NEEDS_HEADERS, NEEDS_NAMES, NEEDS_HEADER_VALUES = range(15, 20)
STATE_SLOTS = 20

# What `fill` comes back with.
DONE, ROWS_ARE_FULL, BYTES_ARE_FULL, MORE_ROOM, END_REACHED = range(5)

REASONS = {
    -1: "its length is impossible",
    -2: "it is in message format 0 or 1, which Kafka 4 no longer keeps and penstock does not read; "
    "let a broker of Kafka 3 rewrite the topic in format 2",
    -3: "its message format is unknown",
    -4: "its offsets are impossible",
    -10: "the number of records does not fit its bytes",
    -11: "a record runs past its end",
    -12: "a number in a record is too long",
    -13: "a timestamp does not fit 64 bits",
    -14: "the offsets of its records do not grow, or leave the batch",
    -15: "a length below -1",
    -16: "the number of headers does not fit the record",
    -17: "a header without a name",
    -18: "a record's length does not match its content",
    -19: "bytes follow its last record",
}

_BATCH_HEADER_BYTES = 61
_LOG_OVERHEAD_BYTES = 12
_MAGIC_AT = 16
_OFFSET_MAX = 2**63 - 1
_RECORD_BYTES_MIN = 7
_HEADER_BYTES_MIN = 2
_LOW_63_BITS = 2**63 - 1
# The times that are left after milliseconds became microseconds.
_MS_MAX = (2**63 - 1) // 1000


@inlined
def _big_endian(address: int, at: int, size: int) -> int:
    value = byte_at(address, at)
    if value >= 0x80:
        value -= 0x100
    for index in range(at + 1, at + size):
        value = (value << 8) | byte_at(address, index)
    return value


@compiled
def find_batches(data: "Bytes", at: int, table: "Int64s") -> tuple[int, int, int]:
    """Fill the table with the whole batches from `at` on: (how many, where the next begins, below zero for a lie)."""
    size = len(data)
    address = address_of(data)
    found = 0
    while found < len(table):
        # A fetch cuts the last batch anywhere; what cannot be read of it comes with the next one.
        if size - at <= _MAGIC_AT:
            break
        length = _big_endian(address, at + 8, 4)
        magic = byte_at(address, at + _MAGIC_AT)
        if magic < 2:
            return found, at, -2
        if magic > 2:
            return found, at, -3
        if length < _BATCH_HEADER_BYTES - _LOG_OVERHEAD_BYTES:
            return found, at, -1
        whole = length + _LOG_OVERHEAD_BYTES
        if whole > size - at:
            break
        row = table[found]
        row[AT] = at
        row[SIZE] = whole
        row[BASE_OFFSET] = _big_endian(address, at, 8)
        row[ATTRIBUTES] = _big_endian(address, at + 21, 2)
        row[LAST_DELTA] = _big_endian(address, at + 23, 4)
        row[BASE_TIME] = _big_endian(address, at + 27, 8)
        row[MAX_TIME] = _big_endian(address, at + 35, 8)
        row[PRODUCER] = _big_endian(address, at + 43, 8)
        row[COUNT] = _big_endian(address, at + 57, 4)
        if row[BASE_OFFSET] < 0 or row[LAST_DELTA] < 0 or row[BASE_OFFSET] > _OFFSET_MAX - row[LAST_DELTA] - 1:
            return found, at, -4
        found += 1
        at += whole
    return found, at, 0


@inlined
def _varint(address: int, at: int, end: int, bits: int) -> tuple[int, int]:
    """A zigzag _varint and where it ends; a place below zero says what is wrong with it."""
    if at >= end:
        return 0, -11
    byte = byte_at(address, at)
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while shift < bits:
        if at >= end:
            return 0, -11
        byte = byte_at(address, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value >> 1) & _LOW_63_BITS) ^ -(value & 1), at
        shift += 7
    return 0, -12


@inlined
def _measure_headers(address: int, at: int, end: int, count: int, state: "Int64s") -> int:
    """Where `count` headers end; what they take of each column is left in the state's needs."""
    names = np.int64(0)
    values = np.int64(0)
    for _ in range(count):
        length, at = _varint(address, at, end, 32)
        if at < 0:
            return at
        if length < 0:
            return -17
        if length > end - at:
            return -11
        names += length
        length, at = _varint(address, at + length, end, 32)
        if at < 0:
            return at
        if length < -1:
            return -15
        if length > end - at:
            return -11
        if length > 0:
            values += length
            at += length
    state[NEEDS_HEADERS] = count
    state[NEEDS_NAMES] = names
    state[NEEDS_HEADER_VALUES] = values
    return at


@inlined
def _write_headers(
    address: int,
    at: int,
    end: int,
    count: int,
    state: "Int64s",
    name_ends: "Int32s",
    names: "Bytes",
    value_ends: "Int32s",
    values: "Bytes",
    value_validity: "Bytes",
) -> None:
    """Headers that _measure_headers has been over, into columns that have the room."""
    for _ in range(count):
        index = state[HEADERS]
        length, at = _varint(address, at, end, 32)
        move(address + at, address_of(names) + state[NAME_BYTES], length)
        state[NAME_BYTES] += length
        length, at = _varint(address, at + length, end, 32)
        if length >= 0:
            move(address + at, address_of(values) + state[HEADER_BYTES], length)
            state[HEADER_BYTES] += length
            at += length
            value_validity[index >> 3] |= np.uint8(1 << (index & 7))
        else:
            state[HEADER_NULLS] += 1
        name_ends[index + 1] = state[NAME_BYTES]
        value_ends[index + 1] = state[HEADER_BYTES]
        state[HEADERS] = index + 1


@compiled
def fill(
    data: "Bytes",
    spans: "Int64s",
    state: "Int64s",
    first_offset: int,
    end_offset: int,
    bytes_max: int,
    has_headers: bool,
    key_ends: "Int32s",
    keys: "Bytes",
    key_validity: "Bytes",
    value_ends: "Int32s",
    values: "Bytes",
    value_validity: "Bytes",
    offsets: "Int64s",
    times: "Int64s",
    time_validity: "Bytes",
    time_types: "Int32s",
    list_ends: "Int32s",
    list_validity: "Bytes",
    name_ends: "Int32s",
    names: "Bytes",
    header_value_ends: "Int32s",
    header_values: "Bytes",
    header_value_validity: "Bytes",
) -> int:
    """Go on with the spans where the state stands, until they or the columns' room end, or something is wrong."""
    span_index, record, at, previous = state[SPAN], state[RECORD], state[BYTE], state[PREVIOUS_DELTA]
    rows, key_bytes, value_bytes = state[ROWS], state[KEY_BYTES], state[VALUE_BYTES]
    address, keys_address, values_address = address_of(data), address_of(keys), address_of(values)
    result = DONE
    while span_index < len(spans):
        span_end, count = spans[span_index, S_END], spans[span_index, S_COUNT]
        base_offset, last_delta = spans[span_index, S_BASE_OFFSET], spans[span_index, S_LAST_DELTA]
        base_time, append_time = spans[span_index, S_BASE_TIME], spans[span_index, S_APPEND_TIME]
        has_append_time = spans[span_index, S_HAS_APPEND_TIME] != 0
        if record == 0:
            at, previous = spans[span_index, S_AT], np.int64(-1)
            if count < 0 or count > (span_end - at) // _RECORD_BYTES_MIN:
                result = -10
                break
        while record < count:
            length, place = _varint(address, at, span_end, 32)
            if place < 0:
                result = place
                break
            if length < 0 or length > span_end - place:
                result = -11
                break
            end = place + length
            # Behind the length comes a byte of attributes, no bit of which has a meaning.
            time_delta, place = _varint(address, place + 1, end, 64)
            if place < 0:
                result = place
                break
            time = base_time + time_delta
            # An overflow turns the sign against both.
            if ((base_time ^ time) & (time_delta ^ time)) < 0:
                result = -13
                break
            delta, place = _varint(address, place, end, 32)
            if place < 0:
                result = place
                break
            if delta <= previous or delta > last_delta:
                result = -14
                break
            key_length, key_at = _varint(address, place, end, 32)
            if key_at < 0:
                result = key_at
                break
            if key_length > end - key_at:
                result = -11
                break
            value_length, value_at = _varint(address, key_at + max(key_length, 0), end, 32)
            if value_at < 0:
                result = value_at
                break
            if value_length > end - value_at:
                result = -11
                break
            if key_length < -1 or value_length < -1:
                result = -15
                break
            header_count, headers_at = _varint(address, value_at + max(value_length, 0), end, 32)
            if headers_at < 0:
                result = headers_at
                break
            place = headers_at
            if header_count != 0:
                if header_count < 0 or header_count > (end - headers_at) // _HEADER_BYTES_MIN:
                    result = -16
                    break
                place = _measure_headers(address, headers_at, end, header_count, state)
                if place < 0:
                    result = place
                    break
            if place != end:
                result = -18
                break
            offset = base_offset + delta
            if offset >= end_offset:
                result = END_REACHED
                break
            if offset >= first_offset:
                if rows == len(offsets):
                    result = ROWS_ARE_FULL
                    break
                writes_headers = has_headers and header_count != 0
                all_bytes = key_bytes + value_bytes + max(key_length, 0) + max(value_length, 0)
                if writes_headers:
                    all_bytes += state[NAME_BYTES] + state[HEADER_BYTES]
                    all_bytes += state[NEEDS_NAMES] + state[NEEDS_HEADER_VALUES]
                if rows > 0 and all_bytes > bytes_max:
                    result = BYTES_ARE_FULL
                    break
                if (
                    key_length > len(keys) - key_bytes
                    or value_length > len(values) - value_bytes
                    or (
                        writes_headers
                        and (
                            state[HEADERS] + header_count >= len(name_ends)
                            or state[NEEDS_NAMES] > len(names) - state[NAME_BYTES]
                            or state[NEEDS_HEADER_VALUES] > len(header_values) - state[HEADER_BYTES]
                        )
                    )
                ):
                    state[NEEDS_KEY], state[NEEDS_VALUE] = max(key_length, 0), max(value_length, 0)
                    if not writes_headers:
                        state[NEEDS_HEADERS] = state[NEEDS_NAMES] = state[NEEDS_HEADER_VALUES] = 0
                    result = MORE_ROOM
                    break
                bit = np.uint8(1 << (rows & 7))
                if key_length >= 0:
                    move(address + key_at, keys_address + key_bytes, key_length)
                    key_bytes += key_length
                    key_validity[rows >> 3] |= bit
                else:
                    state[KEY_NULLS] += 1
                key_ends[rows + 1] = key_bytes
                if value_length >= 0:
                    move(address + value_at, values_address + value_bytes, value_length)
                    value_bytes += value_length
                    value_validity[rows >> 3] |= bit
                else:
                    state[VALUE_NULLS] += 1
                value_ends[rows + 1] = value_bytes
                offsets[rows] = offset
                if has_append_time:
                    time = append_time
                # A producer may send any 64 bits as milliseconds; those that no row can hold are told as null.
                if -_MS_MAX <= time <= _MS_MAX:
                    times[rows] = time * 1000
                    time_validity[rows >> 3] |= bit
                else:
                    times[rows] = 0
                    state[TIME_NULLS] += 1
                time_types[rows] = 1 if has_append_time else 0
                if has_headers:
                    if header_count != 0:
                        _write_headers(
                            address,
                            headers_at,
                            end,
                            header_count,
                            state,
                            name_ends,
                            names,
                            header_value_ends,
                            header_values,
                            header_value_validity,
                        )
                        list_validity[rows >> 3] |= bit
                    else:
                        state[LIST_NULLS] += 1
                    list_ends[rows + 1] = state[HEADERS]
                rows += 1
            previous = delta
            at = end
            record += 1
        if result != DONE:
            break
        if at != span_end:
            result = -19
            break
        span_index += 1
        record = 0
    state[SPAN], state[RECORD], state[BYTE], state[PREVIOUS_DELTA] = span_index, record, at, previous
    state[ROWS], state[KEY_BYTES], state[VALUE_BYTES] = rows, key_bytes, value_bytes
    return result
