"""What a client sends is what it reads: keys, values, headers and timestamps, in every compression."""

from pathlib import Path
from time import time

import pytest
from client import Client, Record, numbered
from driver import Driver
from roster import COMPRESSIONS, clients, needs_codec

from penstock.records.batch import read_header
from penstock.records.compression import Codec
from penstock.testing import EmbeddedBroker

TOPIC = "letters"
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


def codecs_in_log(broker: EmbeddedBroker, topic: str) -> set[str]:
    """The compressions of a topic's batches as they lie on disk."""
    codecs: set[str] = set()
    for file in Path(broker.data_dir).rglob(f"{topic}-*/*.log"):
        data = file.read_bytes()
        position = 0
        while position < len(data):
            header = read_header(data, position)
            codecs.add(Codec(header.compression).name.lower())
            position += header.size
    return codecs


@pytest.mark.parametrize("compression", COMPRESSIONS)
@clients("timestamps")
def test_letters_come_back_as_they_were_sent(
    client: Client, penstock_broker: EmbeddedBroker, request: pytest.FixtureRequest, compression: str
) -> None:
    needs_codec(request, compression)
    sent = letters()
    places = client.produce(TOPIC, sent, compression=compression)
    assert places == [(0, offset) for offset in range(len(sent))]
    read = client.read(TOPIC, len(sent))
    assert [(r.key, r.value, r.headers, r.timestamp) for r in read] == [
        (s.key, s.value, s.headers, s.timestamp) for s in sent
    ]
    assert codecs_in_log(penstock_broker, TOPIC) == {compression}
