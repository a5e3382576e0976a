"""What consumers of the classic protocol say to each other through the broker: subscriptions and assignments.

Called by groups.roster, which only asks for topics, and by the rooms that serve such consumers in a consumer group.
The bytes are the members' own business and may be anything; a broker that cannot read them says so.

    subscription  i16 version | topics | user data | 1: topics with partitions owned | 2: i32 generation | 3: rack
    assignment    i16 version | topics with partitions | user data
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import MalformedFrame
from penstock.wire.primitives import (
    I16,
    I32,
    MALFORMED,
    read_count,
    read_length,
    read_nullable_string,
    read_string,
    write_length,
    write_nullable_string,
)

SUBSCRIPTION_VERSION_MAX = 3

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]


class Subscription(NamedTuple):
    version: int
    topics: frozenset[str]
    owned: TopicPartitions
    rack: str | None


class GivenPartitions(NamedTuple):
    """An assignment as its members' leader made it."""

    partitions: TopicPartitions
    has_user_data: bool


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if the bytes are no consumer's subscription."""
    try:
        return _read_topics(memoryview(metadata))[0]
    except (MalformedFrame, *MALFORMED):
        return None


def read_subscription(metadata: bytes) -> Subscription | None:
    """None if the bytes are no consumer's subscription."""
    view = memoryview(metadata)
    try:
        # A later version has what we know and then something more.
        version = min(I16.unpack_from(view)[0], SUBSCRIPTION_VERSION_MAX)
        topics, position = _read_topics(view)
        position = _skip_bytes(view, position)[1]
        owned: TopicPartitions = ()
        rack = None
        if version >= 1:
            owned, position = _read_partitions(view, position)
        if version >= 3:
            rack, position = read_nullable_string(view, position + I32.size, False)
    except (MalformedFrame, *MALFORMED):
        return None
    return Subscription(max(version, 0), topics, owned, rack or None)


def read_assignment(assignment: bytes) -> GivenPartitions | None:
    """None if the bytes are no consumer's assignment; no bytes at all are an assignment of nothing."""
    if not assignment:
        return GivenPartitions((), False)
    view = memoryview(assignment)
    try:
        partitions, position = _read_partitions(view, I16.size)
        has_user_data, _ = _skip_bytes(view, position)
    except (MalformedFrame, *MALFORMED):
        return None
    return GivenPartitions(partitions, has_user_data)


def write_assignment(version: int, partitions: Iterable[tuple[str, Iterable[int]]]) -> bytes:
    out = bytearray(I16.pack(version))
    in_order = sorted((topic, sorted(indexes)) for topic, indexes in partitions)
    write_length(out, len(in_order), flexible=False)
    for topic, indexes in in_order:
        write_nullable_string(out, topic, flexible=False)
        write_length(out, len(indexes), flexible=False)
        for index in indexes:
            out += I32.pack(index)
    write_length(out, -1, flexible=False)
    return bytes(out)


def _read_topics(view: memoryview) -> tuple[frozenset[str], int]:
    count, position = read_count(view, I16.size, False, 2)
    topics: list[str] = []
    for _ in range(count):
        topic, position = read_string(view, position, False)
        topics.append(topic)
    return frozenset(topics), position


def _read_partitions(view: memoryview, position: int) -> tuple[TopicPartitions, int]:
    count, position = read_count(view, position, False, 6)
    partitions: list[tuple[str, tuple[int, ...]]] = []
    for _ in range(count):
        topic, position = read_string(view, position, False)
        indexes, position = read_count(view, position, False, 4)
        partitions.append((topic, tuple(I32.unpack_from(view, position + 4 * place)[0] for place in range(indexes))))
        position += 4 * indexes
    return tuple(partitions), position


def _skip_bytes(view: memoryview, position: int) -> tuple[bool, int]:
    length, position = read_length(view, position, False)
    end = position + max(length, 0)
    if end > len(view):
        raise MalformedFrame("bytes run past the frame")
    return length > 0, end
