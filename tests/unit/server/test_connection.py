"""server.connection: frames in however they are cut, replies out in order, nothing kept that nobody reads."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import brief_work
from penstock.disk import RealFile
from penstock.errors import ErrorCode
from penstock.handlers import one_batch
from penstock.handlers.answers import LateReply
from penstock.records.record import Record, encode_batch
from penstock.server.connection import OWN_BUFFER_BYTES_MIN, REQUESTS_IN_FLIGHT_MAX
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import ApiKey

PRODUCE, FETCH, API_VERSIONS, METADATA = ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS, ApiKey.METADATA
MIB = 1 << 20

Factory = Callable[..., EmbeddedBroker]
Gate = threading.Event


# Order


def test_replies_leave_in_request_order_though_answers_are_ready_out_of_order(
    penstock_broker: EmbeddedBroker,
    connect: Any,
    create: Any,
    frames: Any,
    inside: Any,
    stable_storage: Gate,
) -> None:
    create(penstock_broker, "orders")
    look, wire = inside(penstock_broker), connect(penstock_broker)
    asked_before = look.requests("ApiVersions")
    stable_storage.clear()
    wire.send(frames.produce(1, "orders", acks=-1) + frames.make(API_VERSIONS, 0, 2))
    look.until(lambda: penstock_broker.broker.metrics.requests.child("ApiVersions").value > asked_before)
    assert not wire.has_bytes()
    stable_storage.set()
    assert wire.receive(PRODUCE, 9)[0] == 1
    assert wire.receive(API_VERSIONS, 0)[0] == 2


def test_who_is_alone_has_its_syncs_on_the_loop(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    monkeypatch.setattr(brief_work, "QUICK_S", 1000.0)
    monkeypatch.setattr(RealFile, "sync", lambda _: threads.append(threading.current_thread().name))
    create(penstock_broker, "orders")
    wire = connect(penstock_broker)
    for number in range(10):
        wire.send(frames.produce(number, "orders", acks=-1))
        wire.receive(PRODUCE, 9)
    assert threads[0].startswith("penstock-io"), "the directory of the first is new"
    assert not any(name.startswith("penstock-io") for name in threads[-9:])


def test_a_disk_that_was_slow_once_stops_only_those_who_wait_for_it(
    penstock_broker: EmbeddedBroker,
    connect: Any,
    create: Any,
    frames: Any,
    stalling_storage: Gate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brief_work, "QUICK_S", 0.0)  # every sync is slow
    monkeypatch.setattr(brief_work, "REST_PER_SLOW_S", 1e9)
    create(penstock_broker, "orders")
    wire, other = connect(penstock_broker), connect(penstock_broker)
    for number in (1, 2):
        wire.send(frames.produce(number, "orders", acks=-1))
        wire.receive(PRODUCE, 9)
    stalling_storage.clear()
    wire.send(frames.produce(3, "orders", acks=-1))
    other.send(frames.make(API_VERSIONS, 0, 1))
    assert other.receive(API_VERSIONS, 0)[0] == 1
    assert not wire.has_bytes()
    stalling_storage.set()
    assert wire.receive(PRODUCE, 9)[0] == 3


def test_replies_made_at_the_end_of_a_turn_keep_their_place(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any
) -> None:
    """Answers to acks=1 are late, those to ApiVersions and Fetch are not, those to acks=all come much later."""
    create(penstock_broker, "orders")
    wire = connect(penstock_broker)
    wire.send(frames.produce(1, "orders", acks=1))  # the first of a segment is written by itself
    wire.receive(PRODUCE, 9)
    asked: list[tuple[ApiKey, int]] = []
    sent = b""
    for number in range(1, 61):
        match number % 6:
            case 0:
                asked.append((API_VERSIONS, 0))
                sent += frames.make(API_VERSIONS, 0, number)
            case 3:
                asked.append((FETCH, 4))
                sent += frames.make(FETCH, 4, number, **frames.fetch_body("orders"))
            case left:
                asked.append((PRODUCE, 9))
                sent += frames.produce(number, "orders", acks=-1 if left == 5 else 1)
    wire.send(sent)
    offsets: list[int] = []
    for number, (api, version) in enumerate(asked, 1):
        correlation_id, answer = wire.receive(api, version)
        assert correlation_id == number
        if api is PRODUCE:
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(1, 41))


def test_a_late_reply_that_cannot_be_made_ends_its_connection_and_no_other(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(penstock_broker, "orders")
    one, other = connect(penstock_broker), connect(penstock_broker)
    one.send(frames.produce(1, "orders", acks=1))  # the first of a segment is written by itself
    one.receive(PRODUCE, 9)

    def broken() -> bytes:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(one_batch, "LateReply", lambda _: LateReply(broken))
    # The first of a turn is written at once, so the second is the one whose answer is late.
    one.send(frames.produce(12, "orders", acks=1) + frames.produce(13, "orders", acks=1))
    assert one.is_hung_up_on()
    other.send(frames.produce(14, "orders", acks=1))
    assert other.receive(PRODUCE, 9)[0] == 14


def test_no_more_requests_are_open_than_the_limit_and_all_are_answered_in_order(
    penstock_broker: EmbeddedBroker,
    connect: Any,
    create: Any,
    frames: Any,
    inside: Any,
    stable_storage: Gate,
) -> None:
    create(penstock_broker, "orders")
    look, wire, other = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    count = 3 * REQUESTS_IN_FLIGHT_MAX
    stable_storage.clear()
    wire.send(b"".join(frames.produce(number, "orders", acks=-1) for number in range(count)))
    look.until(lambda: penstock_broker.broker.metrics.requests.child("Produce").value >= REQUESTS_IN_FLIGHT_MAX)
    assert other.ask(API_VERSIONS, 0).error_code == 0
    assert look.requests("Produce") == REQUESTS_IN_FLIGHT_MAX
    stable_storage.set()
    answers = [wire.receive(PRODUCE, 9) for _ in range(count)]
    assert [correlation_id for correlation_id, _ in answers] == list(range(count))
    assert [answer.responses[0].partition_responses[0].base_offset for _, answer in answers] == list(range(count))


def test_a_request_with_no_answer_does_not_upset_the_order(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, stable_storage: Gate
) -> None:
    create(penstock_broker, "orders")
    wire = connect(penstock_broker)
    wire.send(frames.produce(1, "orders", acks=-1) + frames.produce(2, "orders", acks=0))
    wire.send(frames.produce(3, "orders", acks=1))
    assert [wire.receive(PRODUCE, 9)[0] for _ in range(2)] == [1, 3]


# Frames


def test_frames_cut_at_every_byte_are_read_as_if_they_came_whole(
    penstock_broker: EmbeddedBroker, connect: Any, frames: Any, inside: Any
) -> None:
    two = frames.make(API_VERSIONS, 3, 1, client_software_name="x", client_software_version="1") + frames.make(
        METADATA, 9, 2, topics=[]
    )
    look = inside(penstock_broker)
    wire = connect(penstock_broker)
    (connection,) = look.connections()
    first_bytes = len(two) - len(frames.make(METADATA, 9, 2, topics=[]))
    for cut in range(1, len(two)):
        wire.send(two[:cut])
        kept = cut if cut < first_bytes else cut - first_bytes
        look.until(lambda kept=kept: connection._filled == kept)
        wire.send(two[cut:])
        assert wire.receive(API_VERSIONS, 3)[0] == 1
        assert wire.receive(METADATA, 9)[0] == 2


def test_many_frames_in_one_segment_are_all_answered(
    penstock_broker: EmbeddedBroker, connect: Any, frames: Any
) -> None:
    wire = connect(penstock_broker)
    wire.send(b"".join(frames.make(API_VERSIONS, 0, number) for number in range(5000)))
    assert [wire.receive(API_VERSIONS, 0)[0] for _ in range(5000)] == list(range(5000))


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, 100 * MIB + 1])
def test_an_impossible_length_closes_the_connection(
    penstock_broker: EmbeddedBroker, connect: Any, inside: Any, size: int
) -> None:
    wire, other = connect(penstock_broker), connect(penstock_broker)
    wire.send(size.to_bytes(4, "big", signed=True))
    assert wire.is_hung_up_on()
    assert inside(penstock_broker).closed("size") == 1
    assert other.ask(API_VERSIONS, 0).error_code == 0


def test_a_frame_too_large_for_its_api_is_refused_before_it_has_come(
    penstock_broker: EmbeddedBroker, connect: Any, inside: Any, frames: Any
) -> None:
    wire = connect(penstock_broker)
    head = frames.make(ApiKey.HEARTBEAT, 0, 1)[4:12]
    wire.send((90 * MIB).to_bytes(4, "big") + head)
    assert wire.is_hung_up_on()
    assert inside(penstock_broker).closed("size") == 1


def test_a_buffer_grows_with_what_has_come_and_not_with_what_is_claimed(
    penstock_broker: EmbeddedBroker, connect: Any, inside: Any, frames: Any
) -> None:
    look, wire = inside(penstock_broker), connect(penstock_broker)
    (connection,) = look.connections()
    claim = (100 * MIB).to_bytes(4, "big") + frames.produce(1, "orders")[4:]
    wire.send(claim)
    look.until(lambda: connection._filled == len(claim))
    assert look.held_bytes() == OWN_BUFFER_BYTES_MIN
    wire.send(bytes(3 * MIB))
    look.until(lambda: connection._filled == len(claim) + 3 * MIB)
    assert look.held_bytes() <= 8 * MIB
    wire.close()
    look.until(lambda: penstock_broker.broker.listener.held_bytes == 0)


def test_a_large_request_is_read_whole_and_its_memory_given_back(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"message.max.bytes": str(20 * MIB)})
    create(broker, "orders")
    wire = connect(broker)
    wire.send(frames.produce(1, "orders", bytes(10 * MIB)))
    _, answer = wire.receive(PRODUCE, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert inside(broker).held_bytes() == 0


# Hanging up


def test_a_refused_batch_with_acks_0_closes_the_connection_and_nothing_behind_it_is_written(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    wire, other = connect(penstock_broker), connect(penstock_broker)
    good, bad = frames.produce(1, "orders", acks=0), frames.produce(2, "nowhere", acks=0)
    wire.send(good + bad + good)
    assert wire.is_hung_up_on()
    assert inside(penstock_broker).closed("hangup") == 1
    other.send(frames.produce(3, "orders"))
    assert other.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].base_offset == 1


def test_answers_before_a_hang_up_still_leave(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, stable_storage: Gate
) -> None:
    create(penstock_broker, "orders")
    wire = connect(penstock_broker)
    wire.send(frames.produce(1, "orders", acks=-1) + frames.produce(2, "nowhere", acks=0))
    assert wire.receive(PRODUCE, 9)[0] == 1
    assert wire.is_hung_up_on()


def test_a_client_that_hangs_up_leaves_nothing_behind(
    penstock_broker: EmbeddedBroker,
    connect: Any,
    create: Any,
    frames: Any,
    inside: Any,
    stable_storage: Gate,
) -> None:
    create(penstock_broker, "orders")
    look, wire = inside(penstock_broker), connect(penstock_broker)
    stable_storage.clear()
    wire.send(b"".join(frames.produce(number, "orders", acks=-1) for number in range(10)))
    look.until(lambda: penstock_broker.broker.metrics.requests.child("Produce").value == 10)
    wire.send(frames.make(FETCH, 11, 11, **frames.fetch_body("orders", max_wait=30_000, min_bytes=MIB)))
    partition = look.read(lambda: penstock_broker.broker.replicas.find("orders", 0))
    look.until(lambda: len(partition.waiting) == 1)
    wire.close()
    look.until(lambda: not partition.waiting)
    stable_storage.set()
    other = connect(penstock_broker)
    other.send(frames.produce(1, "orders", acks=-1))
    assert other.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].base_offset == 10


# Transactions


def test_nothing_overtakes_a_batch_that_waits_to_join_its_transaction(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any, stable_storage: Gate
) -> None:
    create(penstock_broker, "orders")
    look, wire, other = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    wire.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=["t"])
    while (given := wire.ask(ApiKey.INIT_PRODUCER_ID, transactional_id="t", transaction_timeout=60_000)).error_code:
        assert given.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def produce(sequence: int) -> bytes:
        records = encode_batch(
            [Record(0, 1_700_000_000_000, b"key", b"value")],
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(records)}]}]
        body = {"transactional_id": "t", "acks": -1, "timeout": 30_000, "topic_data": data}
        return frames.make(PRODUCE, 12, sequence, **body)

    before = look.requests("Produce")
    stable_storage.clear()
    wire.send(b"".join(produce(sequence) for sequence in range(5)))
    look.until(lambda: penstock_broker.broker.metrics.requests.child("Produce").value > before)
    assert other.ask(API_VERSIONS, 0).error_code == 0
    assert look.requests("Produce") == before + 1
    stable_storage.set()
    answers = [wire.receive(PRODUCE, 12) for _ in range(5)]
    results = [answer.responses[0].partition_responses[0] for _, answer in answers]
    assert [(result.error_code, result.base_offset) for result in results] == [(0, offset) for offset in range(5)]
