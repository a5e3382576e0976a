"""Where a consumer starts: at an offset, at either end, at a time; and what is no longer there."""

from time import time

from client import Client, Record, numbered
from roster import clients

from penstock.testing import EmbeddedBroker

TOPIC = "diary"
MINUTE_MS = 60_000
NOW_MS = int(time() * 1000)


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


@clients()
def test_reading_starts_at_the_offset_asked_for(client: Client) -> None:
    client.produce(TOPIC, numbered(100))
    assert numbers(client.read(TOPIC, 30, start=70)) == list(range(70, 100))


@clients()
def test_the_beginning_is_the_first_record_and_the_end_the_next_to_come(client: Client) -> None:
    client.produce(TOPIC, numbered(20))
    at_end = client.reader(TOPIC, "end")
    client.produce(TOPIC, numbered(5, start=20))
    assert numbers(at_end.wait_for_records(5)) == list(range(20, 25))
    assert numbers(client.read(TOPIC, 25, start="beginning")) == list(range(25))


@clients()
def test_seeking_by_time_finds_the_first_record_not_older(client: Client) -> None:
    minutes = [Record(b"%d" % minute, timestamp=NOW_MS + (minute - 60) * MINUTE_MS) for minute in range(60)]
    # In two goes, so that the second lies in batches of its own.
    client.produce(TOPIC, minutes[:30])
    client.produce(TOPIC, minutes[30:])
    between = NOW_MS + (40 - 60) * MINUTE_MS - 1
    exactly = NOW_MS + (10 - 60) * MINUTE_MS
    assert numbers(client.read(TOPIC, 20, start={"time": between})) == list(range(40, 60))
    assert numbers(client.read(TOPIC, 50, start={"time": exactly})) == list(range(10, 60))


@clients()
def test_the_beginning_moves_when_records_are_deleted(client: Client, penstock_broker: EmbeddedBroker) -> None:
    client.produce(TOPIC, numbered(50))
    assert client.admin("delete_records", topic=TOPIC, partition=0, before=20) in (20, None)
    assert numbers(client.read(TOPIC, 30)) == list(range(20, 50))
    penstock_broker.crash_and_restart()
    assert numbers(client.read(TOPIC, 30)) == list(range(20, 50))


@clients("reset_policy")
def test_an_offset_that_is_gone_leads_to_where_the_reset_policy_says(client: Client) -> None:
    client.produce(TOPIC, numbered(50))
    client.admin("delete_records", topic=TOPIC, partition=0, before=20)
    assert numbers(client.read(TOPIC, 30, start=5)) == list(range(20, 50))


@clients()
def test_every_one_of_many_partitions_is_heard_again_and_again(client: Client) -> None:
    # After the first fetch a client asks for changes only: the broker has to remember the rest.
    partitions = 30
    client.create_topic(TOPIC, partitions)
    member = client.member("readers", TOPIC)
    producer = client.producer()
    for turn, partition in enumerate((3, 29, 0, 3, 17)):
        producer.send(TOPIC, [Record(b"%d" % turn, partition=partition)])
        member.wait_for_records(turn + 1)
    assert [int(value or b"") for value in member.values] == list(range(5))
