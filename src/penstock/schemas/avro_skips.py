"""Avro's binary encoding, walked over value by value: one function per type, and BadValue for bytes that are none.

Called by avro_values.py, which puts them together for a schema. Laws:
- A function gives the place after its value, and keeps nothing of it.
- Nothing announced is believed before the bytes are there: sizes and counts are held against what is left.
- Every step consumes a byte or is one of at most EMPTY_ITEMS_MAX items that take none; depth ends at VALUE_DEPTH_MAX.
"""

from typing import Protocol

VALUE_DEPTH_MAX = 250
EMPTY_ITEMS_MAX = 1 << 16
_VARINT_BYTES_MAX = 10
_INT_MAX = (1 << 31) - 1
_STEPS_SHOWN = 6


class BadValue(Exception):
    """The bytes are no value of the schema; `steps` are filled in on the way out, innermost first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []

    def __str__(self) -> str:
        steps = self.steps[::-1]
        if len(steps) > 2 * _STEPS_SHOWN:
            steps = [*steps[:_STEPS_SHOWN], "…", *steps[-_STEPS_SHOWN:]]
        return f"{'.'.join(steps)}: {self.reason}" if steps else self.reason


class Skip(Protocol):
    def __call__(self, data: bytes, at: int, depth: int, /) -> int:
        """The place after the value that begins at `at`."""
        ...


def deeper(depth: int) -> int:
    if depth >= VALUE_DEPTH_MAX:
        raise BadValue(f"the value nests deeper than {VALUE_DEPTH_MAX} levels")
    return depth + 1


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag number of up to 64 bits, and the place after it."""
    try:
        byte = data[at]
        number = byte & 0x7F
        shift = 7
        first = at
        while byte & 0x80:
            at += 1
            byte = data[at]
            number |= (byte & 0x7F) << shift
            shift += 7
            if at - first >= _VARINT_BYTES_MAX:
                raise BadValue("a number is longer than 64 bits")
    except IndexError:
        raise BadValue("the bytes end within a number") from None
    if number >> 64:
        raise BadValue("a number is longer than 64 bits")
    return (number >> 1) ^ -(number & 1), at + 1


def _skip_null(data: bytes, at: int, depth: int, /) -> int:
    return at


def _skip_boolean(data: bytes, at: int, depth: int, /) -> int:
    if at >= len(data):
        raise BadValue("the bytes end before a boolean")
    if data[at] > 1:
        raise BadValue(f"{data[at]} is no boolean")
    return at + 1


def _skip_int(data: bytes, at: int, depth: int, /) -> int:
    number, at = _long(data, at)
    if not -_INT_MAX - 1 <= number <= _INT_MAX:
        raise BadValue(f"{number} is no int of 32 bits")
    return at


def _skip_long(data: bytes, at: int, depth: int, /) -> int:
    return _long(data, at)[1]


def sized(size: int) -> Skip:
    def skip(data: bytes, at: int, depth: int, /) -> int:
        end = at + size
        if end > len(data):
            raise BadValue(f"{size} bytes are announced and {len(data) - at} are there")
        return end

    return skip


def _skip_bytes(data: bytes, at: int, depth: int, /) -> int:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise BadValue(f"{size} bytes are announced and {len(data) - at} are there")
    return at + size


def skip_string(data: bytes, at: int, depth: int, /) -> int:
    size, at = _long(data, at)
    if not 0 <= size <= len(data) - at:
        raise BadValue(f"{size} bytes of text are announced and {len(data) - at} bytes are there")
    try:
        data[at : at + size].decode()
    except UnicodeDecodeError:
        raise BadValue("a text is no UTF-8") from None
    return at + size


def symbol(count: int) -> Skip:
    def skip(data: bytes, at: int, depth: int, /) -> int:
        number, at = _long(data, at)
        if not 0 <= number < count:
            raise BadValue(f"the enum has no symbol number {number}")
        return at

    return skip


def branches(skips: tuple[Skip, ...]) -> Skip:
    def skip(data: bytes, at: int, depth: int, /) -> int:
        number, at = _long(data, at)
        if not 0 <= number < len(skips):
            raise BadValue(f"the union has no branch number {number}")
        return skips[number](data, at, deeper(depth))

    return skip


def blocks(key: Skip | None, item: Skip, *, is_empty: bool) -> Skip:
    """An array, or with `key` a map: blocks of counted items, the last one of none."""

    def skip(data: bytes, at: int, depth: int, /) -> int:
        depth = deeper(depth)
        empty_left = EMPTY_ITEMS_MAX
        while True:
            count, at = _long(data, at)
            if count == 0:
                return at
            block_end = None
            if count < 0:
                size, at = _long(data, at)
                count, block_end = -count, at + size
            if is_empty:
                empty_left -= count
                if empty_left < 0:
                    raise BadValue(f"more than {EMPTY_ITEMS_MAX} items that take no bytes are announced")
            elif count > len(data) - at:
                raise BadValue(f"{count} items are announced and {len(data) - at} bytes are there")
            else:
                for _ in range(count):
                    if key is not None:
                        at = key(data, at, depth)
                    at = item(data, at, depth)
            if block_end is not None and at != block_end:
                raise BadValue("a block of items is not as long as it says")

    return skip


PRIMITIVE_SKIPS: dict[str, Skip] = {
    "null": _skip_null,
    "boolean": _skip_boolean,
    "int": _skip_int,
    "long": _skip_long,
    "float": sized(4),
    "double": sized(8),
    "bytes": _skip_bytes,
    "string": skip_string,
}
