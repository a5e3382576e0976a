"""What clients push is read as OpenTelemetry's own library writes it, and bytes that are no such thing harm nobody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.errors import InvalidRecord
from penstock.telemetry import otlp
from penstock.telemetry.otlp import Point, Push, read_push

TIMES = {"start_time_unix_nano": 1, "time_unix_nano": 2}


def text(name: str, value: str) -> KeyValue:
    return KeyValue(key=name, value=AnyValue(string_value=value))


def encode(*metrics: Metric, resource: tuple[KeyValue, ...] = ()) -> memoryview:
    scope = ScopeMetrics(metrics=metrics, schema_url="not read")
    data = ResourceMetrics(resource=Resource(attributes=resource), scope_metrics=[scope], schema_url="nor this")
    return memoryview(MetricsData(resource_metrics=[data]).SerializeToString())


def gauge(name: str, *points: NumberDataPoint) -> Metric:
    return Metric(name=name, description="not read", unit="ms", gauge=Gauge(data_points=points))


def test_gauges_sums_and_attributes_are_read() -> None:
    data = encode(
        gauge(
            "latency",
            NumberDataPoint(as_double=1.5, attributes=[text("node.id", "2"), text("b", "x")], **TIMES),
            NumberDataPoint(as_int=-7, attributes=[KeyValue(key="n", value=AnyValue(int_value=-3))]),
            NumberDataPoint(as_int=0, attributes=[KeyValue(key="yes", value=AnyValue(bool_value=True))]),
        ),
        Metric(
            name="sent",
            sum=Sum(
                data_points=[NumberDataPoint(as_int=2**62)],
                is_monotonic=True,
                aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA,
            ),
        ),
        Metric(
            name="queued",
            sum=Sum(
                data_points=[NumberDataPoint(as_double=4)], aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE
            ),
        ),
        Metric(name="shape", histogram=Histogram(data_points=[HistogramDataPoint(count=1)])),
        gauge("nothing", NumberDataPoint(**TIMES)),
        # What Java's clients push for an average without a sample: nothing was lost with these.
        gauge("endless", NumberDataPoint(as_double=float("inf"))),
        gauge("none", NumberDataPoint(as_double=float("nan"))),
        resource=(text("group_id", "readers"),),
    )
    assert read_push(data) == Push(
        (("group_id", "readers"),),
        [
            Point("latency", (("b", "x"), ("node.id", "2")), 1.5, is_counter=False, is_delta=False),
            Point("latency", (("n", "-3"),), -7, is_counter=False, is_delta=False),
            Point("latency", (("yes", "true"),), 0, is_counter=False, is_delta=False),
            Point("sent", (), 2**62, is_counter=True, is_delta=True),
            Point("queued", (), 4.0, is_counter=False, is_delta=False),
        ],
        left_out=2,
    )


def test_there_is_a_limit_to_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [text(f"a{number}", "v") for number in range(otlp.ATTRIBUTES_MAX + 3)]
    long = gauge("n" * 1000, NumberDataPoint(as_int=1, attributes=[*many[:1], text("b", "ü" * 1000)]))
    (point,) = read_push(encode(long)).points
    assert (len(point.name), len(point.attributes[1][1])) == (otlp.TEXT_CHARACTERS_MAX, otlp.TEXT_CHARACTERS_MAX)
    (point,) = read_push(encode(gauge("x", NumberDataPoint(as_int=1, attributes=many)))).points
    assert len(point.attributes) == otlp.ATTRIBUTES_MAX
    points = [NumberDataPoint(as_int=1)] * (otlp.POINTS_MAX + 5)
    push = read_push(encode(gauge("x", *points)))
    assert (len(push.points), push.left_out) == (otlp.POINTS_MAX, 5)
    monkeypatch.setattr(otlp, "FIELDS_MAX", 50)
    with pytest.raises(InvalidRecord, match="more than 50 fields"):
        read_push(encode(gauge("x", *points)))


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",  # a length that is not there
        b"\x0a\x05abc",  # a field cut short
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a length past everything
        b"\x80" * 11,  # a number without end
        b"\x08\x01",  # a number where a message should be
        b"\x0b",  # groups are not part of it
        b"\x0a\x0b\x12\x09\x12\x07\x0a\x01x\x2a\x02\x08\x01",  # a data point that is a number
    ],
)
def test_bytes_that_are_no_metrics_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        read_push(memoryview(data))


@given(st.binary(max_size=300), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_make_it_fail_otherwise(noise: bytes, at: int, byte: int) -> None:
    whole = bytearray(encode(gauge("latency", NumberDataPoint(as_double=1.5, attributes=[text("a", "b")]))))
    whole[at % len(whole)] = byte
    for data in (noise, bytes(whole), bytes(whole[: at % len(whole)])):
        try:
            read_push(memoryview(data))
        except InvalidRecord:
            continue
