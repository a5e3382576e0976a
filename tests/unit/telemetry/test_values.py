"""What is kept of pushes, under which names, and never more than there is room for."""

from uuid import UUID

import pytest

from penstock.metrics import Counter, Registry
from penstock.telemetry import values as module
from penstock.telemetry.otlp import Attributes, Point, Push
from penstock.telemetry.values import ClientValues, label_name, metric_name

FIRST, SECOND = UUID(int=1), UUID(int=2)


def push(*points: tuple[str, float], is_counter: bool = False, is_delta: bool = False, left_out: int = 0) -> Push:
    return Push((), [Point(name, (), value, is_counter, is_delta) for name, value in points], left_out)


@pytest.fixture
def left_out() -> Counter:
    return Counter()


@pytest.fixture
def values(left_out: Counter) -> ClientValues:
    return ClientValues(left_out)


def rows(values: ClientValues) -> dict[tuple[str, Attributes], float]:
    return {(family.name, pairs): value for family in values.families() for pairs, value in family.rows}


@pytest.mark.parametrize(
    ("name", "is_counter", "spelled"),
    [
        ("org.apache.kafka.producer.record.send.total", True, "mq_client_producer_record_send_total"),
        ("org.apache.kafka.consumer.fetch.manager.bytes", True, "mq_client_consumer_fetch_manager_bytes_total"),
        ("Über-Messung {x}", False, "mq_client_ber_messung_x"),
        ('a"} 1\nmq_evil', False, "mq_client_a_1_mq_evil"),
    ],
)
def test_names_are_spelled_as_prometheus_wants_them(name: str, is_counter: bool, spelled: str) -> None:
    assert metric_name(name, is_counter=is_counter) == spelled


def test_an_attribute_never_poses_as_one_of_our_labels() -> None:
    assert [label_name(name) for name in ("node.id", "client_id", "9", "…")] == [
        "node_id",
        "pushed_client_id",
        "pushed_9",
        "attribute",
    ]


def test_the_page_shows_the_last_value_of_each_client(values: ClientValues) -> None:
    registry = Registry()
    registry.free_families = values.families
    resource = (("group_id", "readers"), ("secret", "not shown"))
    point = Point("org.apache.kafka.producer.latency", (("group_id", "mine"), ("node.id", "1")), 4.0, False, False)
    values.take(FIRST, 'a"b', Push(resource, [point, point._replace(value=2.5)], 0))
    label = f'client_id="a\\"b",client_instance_id="{FIRST}",group_id="readers",node_id="1"'
    assert (
        "# HELP mq_client_producer_latency Pushed by clients (KIP-714).\n"
        f"# TYPE mq_client_producer_latency gauge\nmq_client_producer_latency{{{label}}} 2.5\n"
    ) in registry.render()
    values.forget(FIRST)
    assert ("mq_client_" in registry.render(), len(values)) == (False, 0)


def test_differences_are_added_up_and_totals_are_not(values: ClientValues) -> None:
    for _ in range(3):
        values.take(FIRST, "a", push(("sent", 2), is_counter=True, is_delta=True))
        values.take(FIRST, "a", push(("seen.total", 7), is_counter=True))
        values.take(FIRST, "a", push(("depth", 5), is_delta=True))
    found = {name: value for (name, _), value in rows(values).items()}
    assert found == {"mq_client_sent_total": 6, "mq_client_seen_total": 7, "mq_client_depth": 5}


def test_there_is_room_for_so_many_and_no_more(
    values: ClientValues, left_out: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERIES_PER_CLIENT_MAX", 3)
    monkeypatch.setattr(module, "NAMES_MAX", 4)
    monkeypatch.setattr(module, "SERIES_MAX", 5)
    values.take(FIRST, "a", push(*((f"a{number}", 1) for number in range(5)), left_out=10))
    assert (len(values), left_out.value) == (3, 12), "of one client"
    values.take(SECOND, "b", push(("b0", 1), ("b1", 1), ("a0", 1), ("a1", 1)))
    assert (len(values), left_out.value) == (5, 14), "of names, then of all"
    values.take(FIRST, "a", push(("a0", 9)))
    assert left_out.value == 14, "a value that is kept already has its place"
    values.forget(FIRST)
    values.take(SECOND, "b", push(("b1", 1)))
    assert (len(values), left_out.value) == (3, 14)
