"""The schemas topic: several writers, crashes, a cluster that goes away, what other registries left there."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from penstock.gateway.registry import Registry, deciding
from penstock.gateway.registry.deciding import Written
from penstock.gateway.registry.refusals import Refusal
from penstock.gateway.registry.scope import parse_config
from penstock.gateway.registry.writer import WriteFailed, Writer
from penstock.schemas.stored.records import SchemaRecord, key_of, value_of
from penstock.testing import EmbeddedBroker

DEADLINE_S = 60.0
TOPIC = "_schemas"


def schema(number: int) -> str:
    return f'{{"type":"fixed","name":"F","size":{number}}}'


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        turn = asyncio.Event()
        while not is_so():
            asyncio.get_running_loop().call_later(0.01, turn.set)
            await turn.wait()
            turn.clear()


async def register_patiently(registry: Registry, subject: str, text: str) -> int:
    """As clients do, which come again when they are told to."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await registry.register(subject, "AVRO", text)
            except Refusal as refusal:
                if refusal.status not in (500, 503):
                    raise


@asynccontextmanager
async def running(bootstrap: str, topic: str = TOPIC) -> AsyncIterator[Registry]:
    registry = Registry(bootstrap, {}, topic)
    await registry.start()
    try:
        await until(lambda: registry.is_loaded)
        yield registry
    finally:
        await registry.close()


def facts(registry: Registry) -> dict[str, list[tuple[int, int, bool]]]:
    return {
        name: [(one.version, one.content.id, one.deleted) for one in subject.ordered()]
        for name, subject in sorted(registry.state.subjects.items())
    }


def create(broker: EmbeddedBroker, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(DEADLINE_S)


async def test_the_topic_is_made_compacted_with_one_partition(penstock_broker: EmbeddedBroker) -> None:
    async with running(penstock_broker.bootstrap) as registry:
        assert await registry.register("a", "AVRO", schema(1)) == 1

    admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap})
    assert len(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions) == 1
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    found = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert found["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    ("partitions", "policy", "told"),
    [
        (1, "delete", "cleanup.policy=compact"),
        (1, "compact,delete", "cleanup.policy=compact"),
        (2, "compact", "one order"),
    ],
)
async def test_a_topic_that_could_lose_schemas_is_refused_until_it_is_mended(
    penstock_broker: EmbeddedBroker, partitions: int, policy: str, told: str
) -> None:
    create(penstock_broker, TOPIC, partitions, cleanup_policy=policy)
    registry = Registry(penstock_broker.bootstrap, {}, TOPIC)
    await registry.start()
    try:
        await until(lambda: told in (registry.trouble or ""))
        with pytest.raises(Refusal) as refused:
            registry.subjects()
        assert (refused.value.status, refused.value.code) == (500, 50001)
        with pytest.raises(Refusal, match=told):
            await registry.register("a", "AVRO", schema(1))
    finally:
        await registry.close()


async def test_two_registries_that_race_agree_and_give_no_id_twice(penstock_broker: EmbeddedBroker) -> None:
    async with running(penstock_broker.bootstrap) as first, running(penstock_broker.bootstrap) as second:

        async def register_many(registry: Registry, numbers: range) -> dict[int, int]:
            return {number: await registry.register(f"s{number}", "AVRO", schema(number)) for number in numbers}

        # Of the first hundred each registers its own; the second hundred both register, under one subject each.
        one, two, shared, also = await asyncio.gather(
            register_many(first, range(1, 51)),
            register_many(second, range(51, 101)),
            register_many(first, range(101, 151)),
            register_many(second, range(101, 151)),
        )

        assert shared == also
        given = {**one, **two, **shared}
        assert sorted(given.values()) == list(range(1, 151))
        await until(lambda: len(first.state.subjects) == len(second.state.subjects) == 150)
        assert facts(first) == facts(second)
        assert all(len(versions) == 1 for versions in facts(first).values())
        assert first.state.conflicts == 0
    async with running(penstock_broker.bootstrap) as third:
        assert {name: versions[0][1] for name, versions in facts(third).items()} == {
            f"s{number}": number_id for number, number_id in given.items()
        }


async def test_two_that_are_each_compatible_but_not_together_are_not_both_taken(
    penstock_broker: EmbeddedBroker,
) -> None:
    def record(*fields: str) -> str:
        made = [{"name": name, "type": kind} for name, _, kind in (field.partition(":") for field in fields)]
        return orjson.dumps({"type": "record", "name": "R", "fields": made}).decode()

    async with running(penstock_broker.bootstrap) as first, running(penstock_broker.bootstrap) as second:
        await first.decide(lambda state: deciding.set_config(state, None, parse_config({"compatibility": "FORWARD"})))
        for number in range(10):
            subject = f"s{number}"
            await first.register(subject, "AVRO", record("a:int"))
            tries = [
                first.register(subject, "AVRO", record("a:int", "x:int")),
                second.register(subject, "AVRO", record("a:int", "x:string")),
            ]
            done = await asyncio.gather(*tries, return_exceptions=True)
            refused = [one for one in done if isinstance(one, Refusal)]
            assert [one.code for one in refused] == [409], done
        await until(lambda: facts(first) == facts(second))
        assert all(len(versions) == 2 for versions in facts(first).values())


async def test_what_was_acknowledged_survives_crashes_of_the_broker(penstock_broker: EmbeddedBroker) -> None:
    given: dict[str, int] = {}
    async with running(penstock_broker.bootstrap) as registry:
        for round_ in range(3):
            for number in range(5):
                subject = f"s{round_}-{number}"
                given[subject] = await register_patiently(registry, subject, schema(round_ * 5 + number + 1))
            await asyncio.to_thread(penstock_broker.crash_and_restart)
            assert registry.subjects() == sorted(given), "questions are answered from memory"
        given["last"] = await register_patiently(registry, "last", schema(99))
    async with running(penstock_broker.bootstrap) as fresh:
        assert {name: versions[0][1] for name, versions in facts(fresh).items()} == given


async def test_while_the_cluster_is_away_schemas_are_told_and_nothing_is_changed(
    penstock_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.registry.registry.WRITE_DEADLINE_S", 3.0)
    async with running(penstock_broker.bootstrap) as registry:
        await registry.register("a", "AVRO", schema(1))
        await asyncio.to_thread(penstock_broker.stop)

        found = await registry.schema_by_id(1)
        assert found is not None
        assert found.parsed.canonical == schema(1)
        assert await registry.register("a", "AVRO", schema(1)) == 1, "what is there already needs no cluster"
        with pytest.raises(Refusal) as refused:
            await registry.register("a", "AVRO", schema(2))
        assert (refused.value.status, refused.value.code) == (503, 50003)
        assert registry.versions("a") == [1]
        await asyncio.to_thread(penstock_broker.start)


WRITE_AND_HANG = """
import sys
from penstock.gateway.registry.deciding import Written
from penstock.gateway.registry.writer import Writer
writer = Writer(sys.argv[1], {}, "_schemas")
writer.claim()
producer = writer._producer
producer.begin_transaction()
producer.produce("_schemas", sys.argv[3].encode(), sys.argv[2].encode(), partition=0)
assert producer.flush(30) == 0
print("written", flush=True)
sys.stdin.read()
"""


async def test_a_writer_killed_between_its_record_and_its_commit_leaves_nothing(
    penstock_broker: EmbeddedBroker,
) -> None:
    async with running(penstock_broker.bootstrap) as registry:
        await registry.register("a", "AVRO", schema(1))
        record = SchemaRecord("ghost", 1, 2, "AVRO", schema(2))
        arguments = [penstock_broker.bootstrap, key_of(record).decode(), (value_of(record) or b"").decode()]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            WRITE_AND_HANG,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert await process.stdout.readline() == b"written\n"
        finally:
            process.kill()
            await process.wait()

        # Its open transaction must not keep the next writer waiting until it times out, nor take its id.
        assert await registry.register("b", "AVRO", schema(3)) == 2
        assert registry.subjects() == ["a", "b"]
    async with running(penstock_broker.bootstrap) as fresh:
        assert fresh.subjects() == ["a", "b"]


async def test_a_write_whose_answer_was_lost_is_not_made_twice(
    penstock_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(penstock_broker.bootstrap) as registry:
        await registry.register("a", "AVRO", schema(1))
        write = Writer.write
        lost: list[Written] = []

        def loses_the_answer(self: Writer, records: list[Written]) -> None:
            write(self, records)
            if not lost:
                lost.extend(records)
                self.give_up()
                raise WriteFailed("the answer was lost", may_be_done=True)

        monkeypatch.setattr(Writer, "write", loses_the_answer)
        done = await registry.decide(lambda state: deciding.delete_subject(state, "a", permanent=False))

        assert done == [1], "decided anew it would be a 404: the subject is deleted already"
        assert len(lost) == 1
        assert registry.subjects() == []


async def test_a_record_that_the_cluster_finds_too_large_is_told_as_such(penstock_broker: EmbeddedBroker) -> None:
    create(penstock_broker, TOPIC, cleanup_policy="compact", max_message_bytes="2000")
    async with running(penstock_broker.bootstrap) as registry:
        doc = os.urandom(4000).hex()
        with pytest.raises(Refusal) as refused:
            await registry.register("a", "AVRO", f'{{"type":"fixed","name":"F","size":1,"doc":"{doc}"}}')
        assert (refused.value.status, refused.value.code) == (422, 42209)
        assert await registry.register("a", "AVRO", schema(1)) == 1


async def test_a_topic_that_another_registry_wrote_is_taken_over(penstock_broker: EmbeddedBroker) -> None:
    create(penstock_broker, TOPIC, cleanup_policy="compact")
    other: list[tuple[str | bytes | None, str | bytes | None]] = [
        ('{"keytype":"NOOP","magic":0}', None),
        (
            '{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}',
            '{"subject":"orders-value","version":1,"id":1,"schema":"\\"string\\"","deleted":false}',
        ),
        (b"\x00\xffgarbage", b"\x00"),
        ('{"keytype":"ASSOCIATION","magic":0}', "{}"),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        ('{"keytype":"MODE","subject":"frozen","magic":0}', '{"subject":"frozen","mode":"READONLY"}'),
        (
            '{"keytype":"SCHEMA","subject":"gone","version":1,"magic":1}',
            '{"subject":"gone","version":1,"id":2,"schema":"\\"int\\"","deleted":false}',
        ),
        ('{"keytype":"DELETE_SUBJECT","subject":"gone","magic":0}', '{"subject":"gone","version":1}'),
        (
            '{"keytype":"SCHEMA","subject":":.eu:orders-value","version":3,"magic":1}',
            '{"subject":":.eu:orders-value","version":3,"id":40,"schemaType":"JSON",'
            '"schema":"{\\"type\\":\\"object\\"}","deleted":false}',
        ),
        ('{"keytype":"SCHEMA","subject":"broken","version":1,"magic":1}', "not json"),
        (
            '{"keytype":"SCHEMA","subject":"cut","version":1,"magic":1}',
            '{"subject":"cut","version":1,"id":3,"schema":"\\"long\\"","deleted":false}',
        ),
        ('{"keytype":"SCHEMA","subject":"cut","version":1,"magic":1}', None),
    ]
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
    for key, value in other:
        producer.produce(TOPIC, value, key, partition=0)
    assert producer.flush(30) == 0

    async with running(penstock_broker.bootstrap) as registry:
        assert registry.subjects() == [":.eu:orders-value", "orders-value"]
        assert registry.subjects(deleted=True) == [":.eu:orders-value", "gone", "orders-value"]
        assert registry.state.unreadable == 3
        assert registry.state.configs == {None: {"compatibilityLevel": "FULL"}}
        assert await registry.register("orders-value", "AVRO", '"string"') == 1
        assert await registry.register("new", "AVRO", schema(1)) == 4, "ids go on where the other stopped"
        with pytest.raises(Refusal):
            await registry.register("frozen", "AVRO", schema(1))
        assert await registry.register(":.eu:new", "AVRO", schema(1)) == 41

    # What was written is what another registry would have written.
    consumer = Consumer({"bootstrap.servers": penstock_broker.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(TOPIC, 0, len(other))])
    found: list[tuple[bytes, bytes]] = []
    while len(found) < 3:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found.append((message.key(), message.value()))
    consumer.close()
    text = orjson.dumps(schema(1)).decode()
    assert found[0] == (
        b'{"keytype":"SCHEMA","subject":"new","version":1,"magic":1}',
        f'{{"subject":"new","version":1,"id":4,"schema":{text},"deleted":false}}'.encode(),
    )
    assert found[1][0] == b'{"keytype":"CONTEXT","tenant":"default","context":".eu","magic":0}'
    assert orjson.loads(found[2][1])["id"] == 41


@pytest.mark.parametrize("is_made_anew", [False, True])
async def test_a_topic_that_is_deleted_is_not_remembered(penstock_broker: EmbeddedBroker, is_made_anew: bool) -> None:
    async with running(penstock_broker.bootstrap) as registry:
        await registry.register("a", "AVRO", schema(1))
        admin = AdminClient({"bootstrap.servers": penstock_broker.bootstrap})
        admin.delete_topics([TOPIC])[TOPIC].result(DEADLINE_S)
        if is_made_anew:
            # Past where the other one ended, so that its end tells nothing.
            create(penstock_broker, TOPIC, cleanup_policy="compact")
            producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
            for number in range(1, 11):
                record = SchemaRecord("other", number, number, "AVRO", schema(number))
                producer.produce(TOPIC, value_of(record), key_of(record), partition=0)
            assert producer.flush(30) == 0

        await until(lambda: registry.subjects() == (["other"] if is_made_anew else []))
        assert await register_patiently(registry, "b", schema(99)) == (11 if is_made_anew else 1)


async def test_many_schemas_are_read_by_a_registry_that_starts(penstock_broker: EmbeddedBroker) -> None:
    create(penstock_broker, TOPIC, cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap, "linger.ms": 50})
    for number in range(1, 3001):
        record = SchemaRecord(f"s{number % 1000}", number // 1000 + 1, number, "AVRO", schema(number))
        producer.produce(TOPIC, value_of(record), key_of(record), partition=0)
        producer.poll(0)
    assert producer.flush(30) == 0

    async with running(penstock_broker.bootstrap) as registry:
        assert registry.state.versions_held == 3000
        assert await registry.register("new", "AVRO", schema(3001)) == 3001


def test_callers_from_many_connections_get_one_id_for_one_schema(gateway: Any) -> None:
    together = threading.Barrier(8)

    def register(number: int) -> int:
        together.wait(DEADLINE_S)
        answer = gateway.http.post("/subjects/shared/versions", json={"schema": schema(1)})
        assert answer.status_code == 200, answer.text
        return answer.json()["id"]

    with ThreadPoolExecutor(8) as callers:
        assert set(callers.map(register, range(8))) == {1}
    assert gateway.http.get("/subjects/shared/versions").json() == [1]
