"""server.listener: who is let in, how much memory half-sent requests may take, who is muted and for how long."""

import socket
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from penstock.server import listener
from penstock.server.connection import OWN_BUFFER_BYTES_MIN
from penstock.server.listener import CROWDED_BUFFER_BYTES, SHARED_BUFFER_BYTES
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import ApiKey

PRODUCE, API_VERSIONS = ApiKey.PRODUCE, ApiKey.API_VERSIONS
MIB = 1 << 20

Factory = Callable[..., EmbeddedBroker]


def is_let_in(wire: Any) -> bool:
    try:
        return wire.ask(API_VERSIONS, 0).error_code == 0
    except (ConnectionResetError, BrokenPipeError):
        return False


# Connections


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max.connections": "2"}, "max.connections"),
        ({"max.connections.per.ip": "2"}, "max.connections.per.ip"),
        ({"max.connections.per.ip": "9", "max.connections.per.ip.overrides": "127.0.0.1:2"}, "max.connections.per.ip"),
        ({"max.connection.creation.rate": "1", "quota.window.num": "3"}, "max.connection.creation.rate"),
    ],
)
def test_a_connection_past_a_limit_is_refused_and_counted(
    penstock_broker_factory: Factory, connect: Any, inside: Any, settings: dict[str, str], reason: str
) -> None:
    broker = penstock_broker_factory(settings)
    first, second = connect(broker), connect(broker)
    assert is_let_in(first)
    assert is_let_in(second)
    assert not is_let_in(connect(broker))
    assert inside(broker).refused(reason) == 1
    assert is_let_in(first)


def test_an_address_with_a_limit_of_its_own_is_not_held_to_the_general_one(
    penstock_broker_factory: Factory, connect: Any
) -> None:
    broker = penstock_broker_factory(
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:2,10.0.0.1:0"}
    )
    assert is_let_in(connect(broker))


def test_a_closed_connection_makes_room_for_the_next(
    penstock_broker_factory: Factory, connect: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"max.connections": "1", "max.connections.per.ip": "1"})
    for _ in range(5):
        wire = connect(broker)
        assert is_let_in(wire)
        wire.close()
        inside(broker).until(lambda: broker.broker.listener.connection_count == 0)


def test_the_kernels_buffers_have_the_sizes_asked_for_and_the_kernel_looks_for_lost_peers(
    penstock_broker_factory: Factory, connect: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"socket.send.buffer.bytes": "40000", "socket.receive.buffer.bytes": "30000"})
    assert is_let_in(connect(broker))
    (connection,) = inside(broker).connections()
    accepted = connection._transport.get_extra_info("socket")
    # Linux doubles what it is asked for, for its own bookkeeping.
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (40_000, 80_000)
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (30_000, 60_000)
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0


# Memory for requests


def test_half_sent_requests_past_the_budget_all_come_through_round_after_round(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    """Each needs more than the budget has; none may wait for ever, and none may keep what the others need."""
    broker = penstock_broker_factory({"queued.max.request.bytes": str(MIB)})
    create(broker, "orders")
    wires = [connect(broker) for _ in range(6)]
    request = frames.produce(1, "orders", bytes(900_000))
    rounds = 5

    def talk(wire: Any) -> None:
        wire.send(request[:300_000])
        for number in range(rounds):
            # The start of the next request comes with the end of this one: there is never a pause between two.
            is_last = number == rounds - 1
            wire.send(request[300_000:] + (b"" if is_last else request[:300_000]))
            wire.receive_frame()

    threads = [threading.Thread(target=talk, args=(wire,)) for wire in wires]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    partition = inside(broker).read(lambda: broker.broker.replicas.find("orders", 0))
    assert partition.log.next_offset == len(wires) * rounds
    for wire in wires:
        wire.close()
    inside(broker).until(lambda: broker.broker.listener.held_bytes == 0)


def test_a_client_that_is_done_with_its_large_request_does_not_keep_its_exemption(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any
) -> None:
    broker = penstock_broker_factory({"queued.max.request.bytes": "300000"})
    create(broker, "orders")
    first, second = connect(broker), connect(broker)
    request = frames.produce(1, "orders", bytes(900_000))
    for wire in (first, second, first, second):
        wire.send(request)
        assert wire.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 0
        assert first.ask(API_VERSIONS, 0).error_code == 0  # still busy, with requests too small to matter


def test_many_half_sent_requests_take_no_more_than_the_budget_and_a_little_each(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    budget, count = MIB, 60
    broker = penstock_broker_factory({"queued.max.request.bytes": str(budget)})
    create(broker, "orders")
    look, healthy = inside(broker), connect(broker)
    half = frames.produce(1, "orders", bytes(900_000))[:200_000]
    wires = [connect(broker) for _ in range(count)]
    for wire in wires:
        wire.send(half)
    # Everybody's first bytes are in: nobody is read from any more who may not grow.
    look.until(lambda: sum(one._filled > 0 for one in broker.broker.listener._connections) == count)
    assert look.held_bytes() <= budget + 2 * SHARED_BUFFER_BYTES + count * max(
        OWN_BUFFER_BYTES_MIN, 2 * CROWDED_BUFFER_BYTES
    )
    healthy.send(frames.produce(1, "orders"))
    assert healthy.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 0


def test_who_sends_nothing_while_others_wait_for_memory_is_hung_up_on(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(listener, "SWEEP_S", 0.1)
    broker = penstock_broker_factory({"queued.max.request.bytes": "300000", "penstock.frame.timeout.ms": "3600000"})
    create(broker, "orders")
    stalled, healthy = connect(broker), connect(broker)
    request = frames.produce(1, "orders", bytes(900_000))
    stalled.send(request[:500_000])
    inside(broker).until(lambda: any(one._filled == 500_000 for one in broker.broker.listener._connections))
    healthy.send(request)
    assert healthy.receive(PRODUCE, 9)[1].responses[0].partition_responses[0].error_code == 0
    assert stalled.is_hung_up_on()
    assert inside(broker).closed("slow") == 1


def test_without_a_budget_nobody_waits(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"queued.max.request.bytes": "-1"})
    create(broker, "orders")
    half = frames.produce(1, "orders", bytes(900_000))
    wires = [connect(broker) for _ in range(5)]
    for wire in wires:
        wire.send(half[:600_000])
    look = inside(broker)
    look.until(lambda: sum(one._filled == 600_000 for one in broker.broker.listener._connections) == 5)
    assert look.read(lambda: broker.broker.listener.is_crowded) is False


# Quotas


def set_quota(wire: Any, key: str, value: float, client_id: str = "greedy") -> None:
    entity = [{"entity_type": "client-id", "entity_name": client_id}]
    entries = [{"entity": entity, "ops": [{"key": key, "value": value}]}]
    answer = wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries)
    assert [entry.error_code for entry in answer.entries] == [0]


def milliseconds(duration: Any) -> int:
    return round(duration.total_seconds() * 1000)


def muted_connections(broker: EmbeddedBroker) -> list[Any]:
    listener: Any = broker.broker.listener
    return [one for one in listener._connections if one._unmuting is not None]


def test_a_producer_over_its_quota_is_told_so_and_not_read_from_until_then(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    look, other, wire = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    set_quota(other, "producer_byte_rate", 10_000)
    wire.send(frames.produce(1, "orders", bytes(900_000), client_id="greedy"))
    _, answer = wire.receive(PRODUCE, 9)
    assert milliseconds(answer.throttle_time) > 60_000
    (muted,) = look.read(lambda: muted_connections(penstock_broker))
    wire.send(frames.make(API_VERSIONS, 0, 2))
    assert other.ask(ApiKey.METADATA, topics=[]).topics == ()
    assert look.requests("ApiVersions") == 0
    look.read(muted._unmute)  # time goes by
    assert wire.receive(API_VERSIONS, 0)[0] == 2
    assert look.read(lambda: penstock_broker.broker.metrics.throttled_requests.child("produce").value) == 1
    # Whoever has no quota is not held up.
    other.send(frames.produce(1, "orders", bytes(105_000)))
    assert milliseconds(other.receive(PRODUCE, 9)[1].throttle_time) == 0


def test_a_consumer_over_its_quota_gets_nothing_until_its_time_is_up(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    look, other, wire = inside(penstock_broker), connect(penstock_broker), connect(penstock_broker)
    other.send(frames.produce(1, "orders", bytes(50_000)))
    other.receive_frame()
    set_quota(other, "consumer_byte_rate", 6_000)

    def fetch(correlation_id: int) -> Any:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": MIB}
        topics = [{"topic": "orders", "partitions": [partition]}]
        wire.send(
            frames.make(
                ApiKey.FETCH, 11, correlation_id, client_id="greedy", max_wait=0, min_bytes=1, max_bytes=MIB,
                session_epoch=-1, topics=topics,
            )
        )  # fmt: skip
        return wire.receive(ApiKey.FETCH, 11)[1]

    first, second = fetch(1), fetch(2)
    assert milliseconds(first.throttle_time) == 0
    assert len(first.responses[0].partitions[0].records) > 50_000
    assert milliseconds(second.throttle_time) > 0
    assert second.responses == ()
    assert look.read(lambda: penstock_broker.broker.metrics.throttled_requests.child("fetch").value) == 1


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, PRODUCE, ApiKey.FETCH])
def test_a_client_that_takes_too_much_of_the_brokers_time_is_told_so(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any, api_key: ApiKey
) -> None:
    create(penstock_broker, "orders")
    other, wire = connect(penstock_broker), connect(penstock_broker)
    set_quota(other, "request_percentage", 0.0001)
    if api_key is PRODUCE:
        wire.send(frames.produce(1, "orders", client_id="greedy"))
        _, answer = wire.receive(PRODUCE, 9)
    else:
        wire.send(frames.make(api_key, 11, 1, client_id="greedy", topics=[]))
        _, answer = wire.receive(api_key, 11)
    assert milliseconds(answer.throttle_time) > 0
    assert inside(penstock_broker).read(
        lambda: penstock_broker.broker.metrics.throttled_requests.child("request").value
    )


def port(wire: Any) -> int:
    return wire.socket.getsockname()[1]


def test_the_longer_of_two_throttles_counts_and_a_client_that_leaves_takes_its_timer_along(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    create(penstock_broker, "orders")
    look, wire = inside(penstock_broker), connect(penstock_broker)
    assert is_let_in(wire)

    (connection,) = (one for one in look.connections() if one._transport.get_extra_info("peername")[1] == port(wire))

    def throttle(milliseconds: int) -> float:
        connection.state.throttle_ms = milliseconds
        connection._mute(connection.state)
        return connection._unmuting.when()

    long = look.read(lambda: throttle(600_000))
    assert look.read(lambda: throttle(1000)) >= long - 1
    timer = look.read(lambda: connection._unmuting)
    wire.close()
    # Reading is off, so nobody notices that the client is gone; a broker that stops does.
    look.read(lambda: connection.close("stop", "the test ends it"))
    look.until(lambda: timer.cancelled())


def test_new_connections_of_an_address_over_its_rate_are_refused(
    penstock_broker_factory: Factory, connect: Any, inside: Any
) -> None:
    broker = penstock_broker_factory({"quota.window.num": "2"})
    wire = connect(broker)
    entity = [{"entity_type": "ip", "entity_name": "127.0.0.1"}]
    entries = [{"entity": entity, "ops": [{"key": "connection_creation_rate", "value": 1}]}]
    assert [entry.error_code for entry in wire.ask(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries).entries] == [0]
    outcomes = [is_let_in(connect(broker)) for _ in range(5)]
    assert outcomes[0]
    assert not all(outcomes)
    assert inside(broker).refused("connection_creation_rate") == outcomes.count(False)


# Coming and going


def test_the_gauges_follow_connections_and_memory(
    penstock_broker: EmbeddedBroker, connect: Any, frames: Any, inside: Any
) -> None:
    def page() -> dict[str, float]:
        with urllib.request.urlopen(f"{penstock_broker.http}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    assert page()["mq_connections"] == 0
    wire = connect(penstock_broker)
    assert is_let_in(wire)
    wire.send(frames.make(API_VERSIONS, 0, 1)[:9])
    inside(penstock_broker).until(lambda: penstock_broker.broker.listener.held_bytes > 0)
    now = page()
    assert now["mq_connections"] == now["mq_connections_accepted_total"] == 1
    assert now["mq_request_bytes_held"] == OWN_BUFFER_BYTES_MIN
    wire.close()
    inside(penstock_broker).until(lambda: penstock_broker.broker.listener.connection_count == 0)
    now = page()
    assert now["mq_connections"] == now["mq_request_bytes_held"] == 0


def test_a_broker_that_stops_hangs_up_on_everybody_also_on_those_who_wait(
    penstock_broker_factory: Factory, connect: Any, create: Any, frames: Any, inside: Any
) -> None:
    broker = penstock_broker_factory()
    create(broker, "orders")
    quiet, waiting = connect(broker), connect(broker)
    assert is_let_in(quiet)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": MIB}
    topics = [{"topic": "orders", "partitions": [partition]}]
    waiting.send(frames.make(ApiKey.FETCH, 11, 1, max_wait=600_000, min_bytes=1, max_bytes=MIB, topics=topics))
    inside(broker).until(lambda: len(broker.broker.replicas.find("orders", 0).waiting) == 1)
    broker.stop()
    assert quiet.is_hung_up_on()
    assert waiting.is_hung_up_on()
