"""What a client sends is what it reads: keys, values, headers and timestamps, in every compression."""

from time import time

import pytest
from client import Client, Record, numbered
from driver import ClientError
from log_files import codecs_in_log
from roster import COMPRESSIONS, Kind, clients, needs_codec

from penstock.testing import EmbeddedBroker

TOPIC = "letters"
TOO_LARGE = "(?i)too.?large"
NOW_MS = int(time() * 1000)


def letters() -> list[Record]:
    """One of each kind that has been mixed up by somebody."""
    return [
        Record(b"plain", b"key", (("trace", b"\x00\x01\xff"), ("empty", b"")), NOW_MS - 5000),
        Record(None, b"deleted", (), NOW_MS - 4000),
        Record(b"", b"", (), NOW_MS - 3000),
        Record(b"no key", None, (("größe", "µ".encode()),), NOW_MS - 3000),
        Record(bytes(range(256)), bytes(reversed(range(256))), (), NOW_MS - 6000),
        Record(b"long " * 20_000, b"long", (), NOW_MS - 1000),
    ]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@clients()
def test_letters_come_back_as_they_were_sent(
    client: Client, penstock_broker: EmbeddedBroker, kind: Kind, compression: str
) -> None:
    needs_codec(kind, compression)
    sent = letters()
    places = client.produce(TOPIC, sent, compression=compression)
    assert places == [(0, offset) for offset in range(len(sent))]
    read = client.read(TOPIC, len(sent))
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read] == [
        (s.key, s.value, s.headers, s.timestamp) for s in sent
    ]
    # A client may leave a batch as it is that would only grow, so "none" can be among them.
    assert compression in codecs_in_log(penstock_broker, TOPIC) <= {compression, "none"}


@clients("odd_headers")
def test_headers_may_repeat_and_be_null(client: Client) -> None:
    headers = (("twice", b"1"), ("nothing", None), ("twice", b"2"))
    client.produce(TOPIC, [Record(b"odd", headers=headers)])
    assert client.read(TOPIC, 1)[0].headers == headers


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
@clients()
def test_what_the_broker_compressed_can_be_read(
    client: Client, penstock_broker: EmbeddedBroker, kind: Kind, compression: str
) -> None:
    needs_codec(kind, compression)
    client.create_topic(TOPIC, compression_type=compression)
    client.produce(TOPIC, letters())
    assert [record.value for record in client.read(TOPIC, 6)] == [letter.value for letter in letters()]
    assert codecs_in_log(penstock_broker, TOPIC) == {compression}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@clients()
def test_every_kind_of_acknowledgement_works(client: Client, acks: str) -> None:
    client.create_topic(TOPIC)
    client.produce(TOPIC, numbered(50), acks=acks)
    assert [int(record.value or b"") for record in client.read(TOPIC, 50)] == list(range(50))


@clients()
def test_producing_to_a_topic_that_is_not_there_makes_it(client: Client) -> None:
    places = client.produce("made-on-demand", numbered(3))
    assert places == [(0, 0), (0, 1), (0, 2)]
    assert "made-on-demand" in client.admin("list_topics")


@clients("keyed_partitions")
def test_records_of_one_key_share_a_partition(client: Client) -> None:
    client.create_topic(TOPIC, partitions=4)
    letters = [Record(b"%d" % number, b"key-%d" % (number % 10), partition=None) for number in range(100)]
    places = client.produce(TOPIC, letters)
    partitions = {number: {partition for partition, _ in places[number::10]} for number in range(10)}
    assert all(len(partition) == 1 for partition in partitions.values())
    assert len({partition for partition, _ in places}) > 1


@clients()
def test_a_record_over_the_limit_is_refused_by_name(client: Client) -> None:
    client.create_topic(TOPIC, max_message_bytes="1000")
    producer = client.producer()
    with pytest.raises(ClientError, match=TOO_LARGE):
        producer.send(TOPIC, [Record(b"x" * 5000)])
    assert producer.send(TOPIC, [Record(b"small")]) == [(0, 0)]
