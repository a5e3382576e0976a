"""The topics a consumer subscribed to, read from the metadata that it joined its group with.

Called by groups.classic_group. The metadata is the members' own business and may be anything; a broker reads it only
to keep offsets of topics in use from being deleted.

    i16 version | i32 count, then each topic as i16 length and text | what follows differs by version
"""

from penstock.errors import MalformedFrame
from penstock.wire.primitives import MALFORMED, read_count, read_string


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if the bytes are no consumer's subscription."""
    view = memoryview(metadata)
    try:
        count, position = read_count(view, 2, False, 2)
        topics: list[str] = []
        for _ in range(count):
            topic, position = read_string(view, position, False)
            topics.append(topic)
    except (MalformedFrame, *MALFORMED):
        return None
    return frozenset(topics)
