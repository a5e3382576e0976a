"""A producer's trace context: what counts as one, and where in a record it is found."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.batch import HEADER_BYTES
from penstock.records.record import Record, encode_batch
from penstock.tracing.first_record import HEADERS_MAX, context_in
from penstock.tracing.trace_context import (
    PARENT_BYTES_MAX,
    STATE_BYTES_MAX,
    STATE_MEMBERS_MAX,
    TraceContext,
    read_context,
)

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SAMPLED = TraceContext(TRACE, SPAN, is_sampled=True)


def records_of(
    *headers: tuple[str, bytes | None], key: bytes | None = b"key", value: bytes | None = b"v" * 300
) -> bytes:
    batch = encode_batch([Record(0, 1_000, key, value, headers), Record(1, 1_001, None, None)])
    return bytes(batch[HEADER_BYTES:])


def test_a_context_is_read_as_the_standard_spells_it() -> None:
    assert read_context(PARENT) == SAMPLED
    assert read_context(PARENT[:-1] + b"0") == SAMPLED._replace(is_sampled=False)
    assert read_context(PARENT, b"rojo=00f067, congo@eu=t61r ,,") == SAMPLED._replace(state="rojo=00f067,congo@eu=t61r")
    assert read_context(b"cc" + PARENT[2:] + b"-what-comes-later") == SAMPLED, "a later version, read as far as known"


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        PARENT[:-1],
        PARENT + b"-more",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        b"00-" + b"0" * 32 + PARENT[35:],
        PARENT[:36] + b"0" * 16 + PARENT[52:],
        b"cc" + PARENT[2:] + b"-" + b"x" * PARENT_BYTES_MAX,
        PARENT + b"\n",
    ],
)
def test_what_is_spelled_otherwise_is_no_context(parent: bytes) -> None:
    assert read_context(parent) is None


@pytest.mark.parametrize(
    "state",
    [
        b"no equals sign",
        b"Upper=1",
        b"a=\x80",
        b"a=1\nInjected: line",
        b",".join(b"k%d=v" % number for number in range(STATE_MEMBERS_MAX + 1)),
        b"a=" + b"v" * STATE_BYTES_MAX,
    ],
)
def test_a_bad_tracestate_is_left_out_and_the_context_kept(state: bytes) -> None:
    assert read_context(PARENT, state) == SAMPLED


@pytest.mark.parametrize("key", [None, b"", b"k" * 200])
@pytest.mark.parametrize("value", [None, b"", b"v" * 20_000])
def test_it_is_found_in_the_first_record_among_other_headers(key: bytes | None, value: bytes | None) -> None:
    others = [("trace", b"x"), ("traceparenz", PARENT), ("empty", None)]
    headers = [*others, ("traceparent", PARENT), ("tracestate", b"a=1"), ("last", b"y" * 200)]
    assert context_in(records_of(*headers, key=key, value=value)) == SAMPLED._replace(state="a=1")
    assert context_in(records_of(*others, key=key, value=value)) is None
    assert context_in(records_of(key=key, value=value)) is None


def test_of_two_headers_the_last_counts_and_of_many_only_so_many_are_read() -> None:
    other = PARENT.replace(b"b7-01", b"b8-00")
    assert context_in(records_of(("traceparent", other), ("traceparent", PARENT))) == SAMPLED
    filling = [("h", b"")] * (HEADERS_MAX - 1)
    assert context_in(records_of(*filling, ("traceparent", PARENT))) == SAMPLED
    assert context_in(records_of(*filling, ("h", b""), ("traceparent", PARENT))) is None


@settings(deadline=None)
@given(st.data())
def test_no_bytes_make_it_fail(data: st.DataObject) -> None:
    good = records_of(("traceparent", PARENT), ("tracestate", b"a=1"), key=b"k", value=b"v")
    at = data.draw(st.integers(0, len(good) - 1))
    damaged = good[:at] + data.draw(st.binary(max_size=12)) + good[at + data.draw(st.integers(0, 12)) :]
    for records in (damaged, memoryview(damaged), data.draw(st.binary(max_size=80)), b"\xff" * 40, b""):
        found = context_in(records)
        assert found is None or 0 < found.trace_id < 1 << 128
