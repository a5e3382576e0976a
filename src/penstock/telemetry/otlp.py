"""What a client pushed: OpenTelemetry's MetricsData, read straight from protobuf's wire format.

Called by handlers.telemetry, on an I/O thread. Reads names, gauges, sums and attributes and passes over the rest: a
library for it would weigh more than the broker.
Invariants:
- Whatever the bytes are, the answer is a Push or InvalidRecord, after at most FIELDS_MAX steps.
- A Push has at most POINTS_MAX points, of ATTRIBUTES_MAX attributes each, with no text above TEXT_CHARACTERS_MAX.
"""

import math
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from penstock.errors import InvalidRecord

FIELDS_MAX = 100_000
POINTS_MAX = 2_000
ATTRIBUTES_MAX = 8
TEXT_CHARACTERS_MAX = 200

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_DOUBLE, _SIGNED = Struct("<d"), Struct("<q")
_DELTA = 1
Attributes = tuple[tuple[str, str], ...]
Value = int | memoryview


class Point(NamedTuple):
    name: str
    attributes: Attributes
    value: float
    is_counter: bool  # a sum that only grows
    is_delta: bool  # since the last push, not since the client began


class Push(NamedTuple):
    """`resource` is what all points share; `left_out` counts points that were too many or of a kind not kept.

    Points that are not a number are not there at all: Java's clients push one for every average without a sample.
    """

    resource: Attributes
    points: list[Point]
    left_out: int


def read_push(data: memoryview) -> Push:
    """Raises InvalidRecord."""
    return _Reader().read(data)


class _Reader:
    def __init__(self) -> None:
        self._fields_left = FIELDS_MAX
        self._points: list[Point] = []
        self._left_out = 0
        self._resource: Attributes = ()

    def read(self, data: memoryview) -> Push:
        for resource_metrics in self._messages(data, 1):
            for number, value in self._fields(resource_metrics):
                if number == 1:
                    self._resource = self._attributes(_message(value), 1)
                elif number == 2:
                    for metric in self._messages(_message(value), 2):
                        self._metric(metric)
        return Push(self._resource, self._points, self._left_out)

    def _metric(self, data: memoryview) -> None:
        name = ""
        for number, value in self._fields(data):
            if number == 1:
                name = _text(_message(value))
            elif number == 5:
                for point in self._messages(_message(value), 1):
                    self._point(name, point, is_counter=False, is_delta=False)
            elif number == 7:
                self._sum(name, _message(value))
            elif number in (9, 10, 11):
                self._left_out += 1  # histograms and summaries, which KIP-714 has none of

    def _sum(self, name: str, data: memoryview) -> None:
        points: list[memoryview] = []
        is_counter = is_delta = False
        # How the points are to be taken may stand behind them.
        for number, value in self._fields(data):
            if number == 1:
                points.append(_message(value))
            elif number == 2:
                is_delta = value == _DELTA
            elif number == 3:
                is_counter = value == 1
        for point in points:
            self._point(name, point, is_counter=is_counter, is_delta=is_delta)

    def _point(self, name: str, data: memoryview, *, is_counter: bool, is_delta: bool) -> None:
        if not name or len(self._points) >= POINTS_MAX:
            self._left_out += 1
            return
        found: float | None = None
        for number, value in self._fields(data):
            # Fixed 64 bits are read as an unsigned number first; what they mean depends on the field.
            if number in (4, 6):
                if not isinstance(value, int):
                    raise InvalidRecord("a data point's value is not a number")
                raw = value.to_bytes(8, "little")
                found = _DOUBLE.unpack(raw)[0] if number == 4 else _SIGNED.unpack(raw)[0]
        if found is None:
            self._left_out += 1
            return
        if not math.isfinite(found):
            return
        self._points.append(Point(name, self._attributes(data, 7), found, is_counter, is_delta))

    def _attributes(self, data: memoryview, field: int) -> Attributes:
        pairs: dict[str, str] = {}
        for pair in self._messages(data, field):
            name, text = "", ""
            for number, value in self._fields(pair):
                if number == 1:
                    name = _text(_message(value))
                elif number == 2:
                    text = self._any_value(_message(value))
            if name and len(pairs) < ATTRIBUTES_MAX:
                pairs[name] = text
        return tuple(sorted(pairs.items()))

    def _any_value(self, data: memoryview) -> str:
        text = ""
        for number, value in self._fields(data):
            if number == 1:
                text = _text(_message(value))
            elif number == 2:
                text = "true" if value else "false"
            elif number == 3 and isinstance(value, int):
                text = str(value - (1 << 64) if value >= 1 << 63 else value)
            elif number == 4 and isinstance(value, int):
                text = repr(_DOUBLE.unpack(value.to_bytes(8, "little"))[0])
        return text

    def _messages(self, data: memoryview, field: int) -> Iterator[memoryview]:
        return (_message(value) for number, value in self._fields(data) if number == field)

    def _fields(self, data: memoryview) -> Iterator[tuple[int, Value]]:
        at, end = 0, len(data)
        while at < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise InvalidRecord(f"more than {FIELDS_MAX} fields in one push of metrics")
            key, at = _varint(data, at)
            kind = key & 7
            if kind == _VARINT:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            if kind == _BYTES:
                size, at = _varint(data, at)
            elif kind in (_FIXED64, _FIXED32):
                size = 8 if kind == _FIXED64 else 4
            else:
                raise InvalidRecord(f"protobuf has no wire type {kind} here")
            if size > end - at:
                raise InvalidRecord("a push of metrics ends inside a field")
            piece = data[at : at + size]
            at += size
            yield key >> 3, piece if kind == _BYTES else int.from_bytes(piece, "little")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(at + _VARINT_BYTES_MAX, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position + 1
        shift += 7
    raise InvalidRecord("a push of metrics ends inside a number")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise InvalidRecord("a number where a push of metrics should have a message")
    return value


def _text(data: memoryview) -> str:
    # A character takes four bytes at most, so that no more than these need to be looked at.
    return bytes(data[: 4 * TEXT_CHARACTERS_MAX]).decode("utf-8", "replace")[:TEXT_CHARACTERS_MAX]
