"""kcat, with the older librdkafka that Debian ships: what people reach for first when they look into a broker."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from kcat_process import GroupMember, kcat, options
from log_files import codecs_in_log
from proxy import CuttingProxy, Fate
from roster import COMPRESSIONS

from penstock.testing import EmbeddedBroker
from penstock.testing.plugin import BrokerFactory

TOPIC = "letters"
LONG = "one and the same " * 100  # so that compressing it pays
PRODUCE = ("-P", "-t", TOPIC)
CONSUME = ("-C", "-t", TOPIC, "-q", "-e", "-J")

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def read(bootstrap: str, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kcat(bootstrap, *CONSUME, *arguments).splitlines()]


def lines(count: int, start: int = 0) -> str:
    return "".join(f"{number}\n" for number in range(start, start + count))


@pytest.fixture
def bootstrap(penstock_broker: EmbeddedBroker) -> str:
    return penstock_broker.bootstrap


@pytest.fixture
def members() -> Iterator[list[GroupMember]]:
    """Whoever is put in leaves when the test ends."""
    joined: list[GroupMember] = []
    yield joined
    for member in joined:
        member.leave()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_keys_headers_and_values_come_back(penstock_broker: EmbeddedBroker, compression: str) -> None:
    bootstrap = penstock_broker.bootstrap
    stdin = f"first:{LONG}\nsecond:\nthird:größe\n"
    kcat(bootstrap, *PRODUCE, "-z", compression, "-K:", "-Z", "-H", "trace=abc", "-H", "empty=", stdin=stdin)
    records = read(bootstrap)
    assert [(record["key"], record["payload"]) for record in records] == [
        ("first", LONG),
        ("second", None),
        ("third", "größe"),
    ]
    assert all(record["headers"] == ["trace", "abc", "empty", ""] for record in records)
    assert compression in codecs_in_log(penstock_broker, TOPIC)


def test_topics_are_listed_with_their_partitions(bootstrap: str) -> None:
    kcat(bootstrap, *PRODUCE, stdin=lines(1))
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    (topic,) = listed["topics"]
    assert (topic["topic"], len(topic["partitions"])) == (TOPIC, 1)
    assert [broker["id"] for broker in listed["brokers"]] == [1]
    assert listed["controllerid"] == 1


def test_offsets_ends_and_times_are_found(bootstrap: str) -> None:
    kcat(bootstrap, *PRODUCE, stdin=lines(10))
    records = read(bootstrap)
    fifth = records[5]["ts"]
    first_of_its_time = next(record["offset"] for record in records if record["ts"] >= fifth)
    assert [record["payload"] for record in read(bootstrap, "-o", "7")] == ["7", "8", "9"]
    assert [record["payload"] for record in read(bootstrap, "-o", "-2")] == ["8", "9"]
    assert read(bootstrap, "-o", f"s@{fifth}")[0]["offset"] == first_of_its_time
    asked = kcat(bootstrap, "-Q", "-t", f"{TOPIC}:0:{fifth}")
    assert f"{TOPIC} [0] offset {first_of_its_time}" in asked
    assert f"{TOPIC} [0] offset 10" in kcat(bootstrap, "-Q", "-t", f"{TOPIC}:0:-1")


def test_two_members_share_and_one_inherits(penstock_broker_factory: BrokerFactory, members: list[GroupMember]) -> None:
    bootstrap = penstock_broker_factory({"num.partitions": "2"}).bootstrap
    kcat(bootstrap, *PRODUCE, "-p", "0", stdin=lines(10))
    kcat(bootstrap, *PRODUCE, "-p", "1", stdin=lines(10, start=10))
    members.append(GroupMember(bootstrap, "readers", TOPIC))
    members[0].wait_until("everything", count=20, assigned=2)
    members.append(GroupMember(bootstrap, "readers", TOPIC))
    members[1].wait_until("a share", assigned=1)
    members[0].wait_until("the other share", assigned=1)
    assert members[0].assigned | members[1].assigned == {0, 1}
    members.pop().leave()
    members[0].wait_until("what the other left", assigned=2)
    kcat(bootstrap, *PRODUCE, "-p", "0", stdin=lines(5, start=20))
    kcat(bootstrap, *PRODUCE, "-p", "1", stdin=lines(5, start=25))
    members[0].wait_until("the rest", count=30)
    assert sorted(map(int, members[0].values)) == list(range(30))


def test_a_group_goes_on_where_it_was_after_a_crash(
    penstock_broker: EmbeddedBroker, members: list[GroupMember]
) -> None:
    kcat(penstock_broker.bootstrap, *PRODUCE, stdin=lines(20))
    before = GroupMember(penstock_broker.bootstrap, "readers", TOPIC)
    before.wait_until("everything", count=20)
    before.leave()  # commits what it has read
    penstock_broker.crash_and_restart()
    kcat(penstock_broker.bootstrap, *PRODUCE, stdin=lines(5, start=20))
    members.append(GroupMember(penstock_broker.bootstrap, "readers", TOPIC))
    members[0].wait_until("what is new", count=5)
    assert members[0].values == ["20", "21", "22", "23", "24"]


def test_everything_arrives_once_and_in_order_over_a_bad_line(
    penstock_broker_factory: BrokerFactory, proxy: CuttingProxy
) -> None:
    broker = penstock_broker_factory({"advertised.listeners": proxy.address})
    proxy.forward_to(broker.bootstrap)
    proxy.cut_every(6)
    settings = ("enable.idempotence=true", "batch.num.messages=15", "reconnect.backoff.max.ms=100")
    kcat(proxy.address, *PRODUCE, "-E", *options(settings), stdin=lines(1500))
    proxy.calm()
    assert set(proxy.fates) == set(Fate)
    assert [int(record["payload"]) for record in read(proxy.address)] == list(range(1500))


def test_a_transaction_is_committed_as_a_whole(bootstrap: str) -> None:
    kcat(bootstrap, *PRODUCE, "-X", "transactional.id=copier", stdin=lines(20))
    assert [int(record["payload"]) for record in read(bootstrap)] == list(range(20))
