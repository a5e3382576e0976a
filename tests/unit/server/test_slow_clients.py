"""server.connection beside clients that do not read, or do not write: they cost memory and time that is counted."""

import threading
from collections.abc import Callable
from typing import Any

from penstock.handlers import fetch
from penstock.server.connection import WRITE_HIGH_BYTES
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import ApiKey

PRODUCE, FETCH, API_VERSIONS, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS, ApiKey.METADATA
MIB = 1 << 20

Factory = Callable[..., EmbeddedBroker]
Gate = threading.Event


def fill(wire: Any, frames: Any, topic: str, size: int) -> None:
    for number in range(size // (512 * 1024)):
        wire.send(frames.produce(number, topic, bytes(512 * 1024)))
        assert wire.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 0


def test_a_client_that_does_not_read_is_not_read_from_and_disturbs_nobody(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    look, other = inside(penstock_broker), connect(penstock_broker)
    fill(other, frames, "orders", 8 * MIB)
    count = 40
    slow = connect(penstock_broker, receive_buffer_bytes=64 * 1024)
    slow.send(b"".join(frames.make(FETCH, 11, number, **frames.fetch_body("orders")) for number in range(count)))
    look.until(lambda: look_unsent(penstock_broker) > WRITE_HIGH_BYTES)
    for _ in range(20):
        assert other.ask(API_VERSIONS, 0).error_code == 0
    taken = look.requests("Fetch")
    # What one answer has, past what may lie unsent; the kernel's own buffers take an answer or two more.
    assert look.unsent_bytes() <= WRITE_HIGH_BYTES + 9 * MIB
    assert taken < count // 4
    answers = [slow.receive(FETCH, 11) for _ in range(count)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(count))
    (size,) = {len(answer.responses[0].partitions[0].records) for _, answer in answers}
    assert size > 8 * MIB


def test_clients_that_do_not_read_share_what_memory_there_is_for_answers(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fetch, "STUCK_BYTES_MAX", 12 * MIB)
    create(penstock_broker, "orders")
    look, other = inside(penstock_broker), connect(penstock_broker)
    fill(other, frames, "orders", 10 * MIB)
    count = 12
    slow = [connect(penstock_broker, receive_buffer_bytes=64 * 1024) for _ in range(count)]
    for number, one in enumerate(slow):
        one.send(frames.make(FETCH, 11, 0, **frames.fetch_body("orders")))
        look.until(lambda number=number: penstock_broker.broker.metrics.requests.child("Fetch").value == number + 1)
    # Two answers and what the kernel took, then one batch for each: everybody gets on, nobody gets all.
    assert look.unsent_bytes() <= 12 * MIB + count * (512 * 1024 + WRITE_HIGH_BYTES)
    answers = [one.receive(FETCH, 11)[1] for one in slow]
    sizes = [len(answer.responses[0].partitions[0].records) for answer in answers]
    assert min(sizes) > 512 * 1024
    assert max(sizes) > 10 * MIB
    look.until(lambda: penstock_broker.broker.listener._outbox.stuck_bytes == 0)
    other.send(frames.make(FETCH, 11, 1, **frames.fetch_body("orders")))
    assert len(other.receive(FETCH, 11)[1].responses[0].partitions[0].records) > 10 * MIB


def test_a_client_that_hangs_up_on_its_answer_gives_the_memory_back(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    fill(connect(penstock_broker), frames, "orders", 10 * MIB)
    look, slow = inside(penstock_broker), connect(penstock_broker, receive_buffer_bytes=64 * 1024)
    slow.send(frames.make(FETCH, 11, 0, **frames.fetch_body("orders")))
    look.until(lambda: penstock_broker.broker.listener._outbox.stuck_bytes > 0)
    slow.close()
    look.until(lambda: penstock_broker.broker.listener._outbox.stuck_bytes == 0)


def test_small_requests_with_large_answers_are_not_taken_faster_than_the_answers_are_read(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders", 2000)
    look, other = inside(penstock_broker), connect(penstock_broker)
    slow = connect(penstock_broker, receive_buffer_bytes=64 * 1024)
    count = 3000
    slow.send(b"".join(frames.make(METADATA, 12, number, topics=None) for number in range(count)))
    look.until(lambda: look_unsent(penstock_broker) > WRITE_HIGH_BYTES)
    assert other.ask(API_VERSIONS, 0).error_code == 0
    assert look.unsent_bytes() <= WRITE_HIGH_BYTES + MIB
    assert look.requests("Metadata") < count // 4


def look_unsent(broker: EmbeddedBroker) -> int:
    listener: Any = broker.broker.listener
    return sum(one._transport.get_write_buffer_size() for one in listener._connections if one._transport)


def test_nothing_is_taken_behind_a_fetch_that_waits(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    look, other, wire = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    patient = frames.fetch_body("orders", max_wait=30_000, min_bytes=1)
    wire.send(b"".join(frames.make(FETCH, 11, number, **patient) for number in range(10)))
    look.until(lambda: penstock_broker.broker.metrics.requests.child("Fetch").value >= 1)
    assert other.ask(API_VERSIONS, 0).error_code == 0
    assert look.requests("Fetch") == 1
    fill(other, frames, "orders", 512 * 1024)
    answers = [wire.receive(FETCH, 11) for _ in range(10)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(10))
    assert all(answer.responses[0].partitions[0].records for _, answer in answers)


def test_answers_that_wait_for_their_turn_stop_the_reading_once_they_are_many_bytes(
    penstock_broker: EmbeddedBroker,
    connect: Any,
    create: Any,
    frames: Any,
    inside: Any,
    stable_storage: Gate,
) -> None:
    create(penstock_broker, "orders")
    create(penstock_broker, "slow")
    look, other, wire = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    fill(other, frames, "orders", 2 * MIB)
    stable_storage.clear()
    many = b"".join(frames.make(FETCH, 11, number, **frames.fetch_body("orders")) for number in range(1, 40))
    wire.send(frames.produce(0, "slow", acks=-1) + many)
    look.until(lambda: penstock_broker.broker.metrics.requests.child("Fetch").value >= 1)
    assert other.ask(API_VERSIONS, 0).error_code == 0
    assert look.requests("Fetch") == 1
    stable_storage.set()
    assert wire.receive(PRODUCE, 9)[0] == 0
    assert [wire.receive(FETCH, 11)[0] for _ in range(1, 40)] == list(range(1, 40))


def test_a_frame_that_dribbles_in_is_hung_up_on_and_a_quiet_client_is_not(
    penstock_broker_factory: Factory, connect: Any, frames: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"penstock.frame.timeout.ms": "100"})
    quiet, slow, slower = connect(broker), connect(broker), connect(broker)
    assert quiet.ask(API_VERSIONS, 0).error_code == 0
    request = frames.make(API_VERSIONS, 0, 1)
    slow.send(request + request[:-1])
    assert slow.receive(API_VERSIONS, 0)[0] == 1
    slower.send(request[:1])
    assert slow.is_hung_up_on()
    assert slower.is_hung_up_on()
    assert inside(broker).closed("slow") == 2
    assert quiet.ask(API_VERSIONS, 0).error_code == 0


def test_a_frame_is_given_its_time_anew_after_we_did_not_read(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    look, wire, other = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    wire.send(frames.make(FETCH, 11, 1, **frames.fetch_body("orders", max_wait=30_000)))
    half = frames.make(API_VERSIONS, 0, 2)[:9]
    wire.send(half)
    connections = look.connections()
    look.until(lambda: any(one._filled == len(half) for one in connections))
    connection = next(one for one in connections if one._filled == len(half))
    assert look.read(lambda: connection.waits_for_bytes_since) == float("inf")

    def pretend_it_began_long_ago() -> None:
        connection.frame_since = connection._host.now() - 3600

    look.read(pretend_it_began_long_ago)
    before = look.read(lambda: connection._host.now())
    fill(other, frames, "orders", 512 * 1024)
    assert wire.receive(FETCH, 11)[0] == 1
    assert before <= look.read(lambda: connection.waits_for_bytes_since) < float("inf")


def test_an_idle_client_is_hung_up_on(penstock_broker_factory: Factory, connect: Any, inside: Any) -> None:
    broker = penstock_broker_factory({"connections.max.idle.ms": "500"})
    wire = connect(broker)
    assert wire.ask(API_VERSIONS, 0).error_code == 0
    assert wire.is_hung_up_on()
    assert inside(broker).closed("idle") == 1


def test_a_client_whose_fetch_waits_is_not_idle(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any
) -> None:
    broker = penstock_broker_factory({"connections.max.idle.ms": "500"})
    create(broker, "orders")
    idle, wire = connect(broker), connect(broker)
    wire.send(frames.make(FETCH, 11, 1, **frames.fetch_body("orders", max_wait=1500)))
    assert idle.is_hung_up_on()
    assert wire.receive(FETCH, 11)[0] == 1


def test_a_client_that_does_not_read_is_idle_whatever_it_asked_for(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"connections.max.idle.ms": "600"})
    create(broker, "orders")
    fill(connect(broker), frames, "orders", 8 * MIB)
    slow = connect(broker, receive_buffer_bytes=64 * 1024)
    slow.send(b"".join(frames.make(FETCH, 11, number, **frames.fetch_body("orders")) for number in range(10)))
    look = inside(broker)
    look.until(lambda: look_unsent(broker) > WRITE_HIGH_BYTES)
    look.until(lambda: look_unsent(broker) == 0)
    assert look.closed("idle") >= 1


def test_a_negative_idle_time_is_for_ever(penstock_broker_factory: Factory, connect: Any, inside: Any) -> None:
    broker = penstock_broker_factory({"connections.max.idle.ms": "-1", "penstock.frame.timeout.ms": "50"})
    quiet, slow = connect(broker), connect(broker)
    for _ in range(3):
        slow.send(b"\x00")
        assert slow.is_hung_up_on()  # a sweep has gone by
        slow = connect(broker)
    assert quiet.ask(API_VERSIONS, 0).error_code == 0
