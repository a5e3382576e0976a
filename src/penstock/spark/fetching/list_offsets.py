"""ListOffsets, asked of one leader for some of its partitions: versions 2 to 5, which Kafka 0.11 to 4.x all speak.

Called by fetching.cluster. By hand, since times may be any 64 bits and kio makes dates of them.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.errors import MalformedFrame
from penstock.model import TopicPartition
from penstock.wire.primitives import I32, I64, MALFORMED, read_count, read_string, write_nullable_string

VERSION_MIN, VERSION_MAX = 2, 5
_LEADER_EPOCH_FROM = 4
_START = Struct(">ib")  # replica id, isolation level
_RESULT = Struct(">ihqq")  # partition, error, timestamp, offset


class Wanted(NamedTuple):
    partition: int
    leader_epoch: int
    timestamp: int


class Found(NamedTuple):
    error_code: int
    offset: int
    timestamp: int


def encode_list_offsets(version: int, is_committed: bool, topics: Mapping[str, Sequence[Wanted]]) -> bytes:
    out = bytearray(_START.pack(-1, is_committed))
    out += I32.pack(len(topics))
    for topic, partitions in topics.items():
        write_nullable_string(out, topic, False)
        out += I32.pack(len(partitions))
        for partition, leader_epoch, timestamp in partitions:
            out += I32.pack(partition)
            if version >= _LEADER_EPOCH_FROM:
                out += I32.pack(leader_epoch)
            out += I64.pack(timestamp)
    return bytes(out)


def parse_list_offsets(version: int, view: memoryview) -> dict[TopicPartition, Found]:
    found: dict[TopicPartition, Found] = {}
    result_bytes = _RESULT.size + (4 if version >= _LEADER_EPOCH_FROM else 0)
    try:
        topic_count, position = read_count(view, 4, False, 6)  # behind the throttle time
        for _ in range(topic_count):
            topic, position = read_string(view, position, False)
            count, position = read_count(view, position, False, result_bytes)
            for _ in range(count):
                partition, error, timestamp, offset = _RESULT.unpack_from(view, position)
                found[TopicPartition(topic, partition)] = Found(error, offset, timestamp)
                position += result_bytes
    except MALFORMED as failure:
        raise MalformedFrame("ListOffsets response") from failure
    return found
