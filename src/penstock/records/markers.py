"""Control records: how a partition learns that a producer's transaction in it was committed or aborted.

Called by log.compaction, log.partition_log and transactions. A marker is the one record of a control batch; only
brokers write them, and consumers never show them.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.errors import InvalidRecord
from penstock.records.record import Record, encode_batch

_KEY = Struct(">hh")  # version, type
_VALUE = Struct(">hi")  # version, coordinator epoch
_VERSION = 0


class ControlType(IntEnum):
    """What a control record says. Kafka has more of them in its own metadata log; here they are UNKNOWN and kept."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    control_type: ControlType
    coordinator_epoch: int


def encode_marker(
    marker: Marker, *, offset: int, timestamp: int, producer_id: int, producer_epoch: int, leader_epoch: int = -1
) -> bytearray:
    """The control batch that ends a transaction."""
    assert marker.control_type is not ControlType.UNKNOWN
    key = _KEY.pack(_VERSION, marker.control_type)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [Record(offset, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def decode_marker(record: Record) -> Marker:
    """The marker in a control record. Later versions may be longer: only the part we know is read."""
    key, value = record.key, record.value
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control record without a type")
    _, number = _KEY.unpack_from(key)
    if number not in (ControlType.ABORT, ControlType.COMMIT):
        return Marker(ControlType.UNKNOWN, -1)
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecord("a transaction marker without a coordinator epoch")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return Marker(ControlType(number), coordinator_epoch)
