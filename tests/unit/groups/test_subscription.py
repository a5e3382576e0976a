"""Reading the topics out of what a consumer joined with."""

import pytest

from penstock.groups.subscription import subscribed_topics


def subscription(version: int, *topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    rest = b"\xff\xff\xff\xff" + (b"\x00\x00\x00\x00" if version >= 1 else b"")
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + rest


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_topics_are_read_from_every_version(version: int) -> None:
    assert subscribed_topics(subscription(version, "a", "bb")) == {"a", "bb"}
    assert subscribed_topics(subscription(version)) == frozenset()


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x00",
        b"\x00\x01\x7f\xff\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\x00\x09ab",
        b"\x00\x01\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_what_is_no_subscription_is_not_taken_for_an_empty_one(junk: bytes) -> None:
    assert subscribed_topics(junk) is None
