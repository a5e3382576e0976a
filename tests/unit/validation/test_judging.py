"""Which records are bad, why, and what has to be looked up before anybody says so."""

import time

import pytest

from penstock.errors import MessageTooLarge
from penstock.records.batch import check_produced
from penstock.records.record import Record, encode_batch
from penstock.schemas.framing import join_frame
from penstock.schemas.schema import SchemaError
from penstock.schemas.stored.closure import Step
from penstock.schemas.stored.parsed import ParsedSchemas
from penstock.validation import judging
from penstock.validation.judging import Judged, MustLookUp, Registered, judge
from penstock.validation.rules import REASON_CHARACTERS_MAX, Rule

LONG = (Step(1, "AVRO", '"long"', ()),)
KNOWN = {
    1: Registered(frozenset({"t-value", "t-key"}), LONG),
    2: Registered(frozenset({"other-value"}), LONG),
    3: Registered(frozenset({"t-value"}), SchemaError("no schema at all")),
    4: Registered(frozenset({"t-key"}), LONG),
}
GOOD = join_frame(1, b"\x02")


def verdict(
    *parts: tuple[bytes | None, bytes | None],
    key: str = "off",
    value: str = "full",
    subject: str | None = "t-value",
    looked_up: frozenset[int] | None = frozenset(range(100)),
    deadline: float = float("inf"),
) -> dict[int, str] | frozenset[int]:
    rule = Rule("t", key, value, None if subject is None else "t-key", subject, "reject", "t.dead-letter")
    batch = memoryview(encode_batch([Record(index, 0, *part) for index, part in enumerate(parts)]))
    found = judge(batch, check_produced(batch), 1 << 20, rule, KNOWN, ParsedSchemas(), deadline, looked_up)
    if isinstance(found, MustLookUp):
        return found.ids
    assert isinstance(found, Judged)
    return {fault.batch_index: fault.reason for fault in found.faults}


def test_every_way_to_be_bad_has_its_reason() -> None:
    found = verdict(
        (None, GOOD),
        (None, None),
        (None, b""),
        (None, b"\x01\x00\x00\x00\x01\x02"),
        (None, join_frame(9, b"")),
        (None, join_frame(2, b"\x02")),
        (None, join_frame(1, b"\x80")),
        (None, join_frame(3, b"\x02")),
    )
    assert found == {
        2: "the value does not begin with a schema id: a zero byte, then four of the id",
        3: "the value does not begin with a schema id: a zero byte, then four of the id",
        4: "the value names schema id 9, which is not registered",
        5: "the value names schema id 2, which is not registered under subject 't-value'",
        6: found[6],
        7: "schema id 3 of the value cannot be read here: no schema at all",
    }
    assert found[6].startswith("the value does not fit schema id 1: ")


def test_modes_and_strategies_ask_for_more_or_less() -> None:
    broken, foreign = join_frame(1, b"\x80"), join_frame(2, b"\x02")
    assert verdict((None, broken), (None, join_frame(3, b"")), value="id") == {}
    assert verdict((None, foreign), subject=None) == {}
    assert verdict((b"x", b"y"), (b"x", GOOD), key="off", value="off") == {}
    keys = verdict((None, b"y"), (GOOD, b"y"), (b"x", None), key="id", value="off")
    assert list(keys) == [2]
    assert keys[2].startswith("the key does not begin")
    assert list(verdict((b"x", b"y"), (GOOD, b"y"), key="id")) == [0, 1], "both parts are looked at"


def test_ids_are_looked_up_before_anything_is_judged() -> None:
    parts = ((None, b"no frame"), (None, join_frame(9, b"")), (None, join_frame(2, b"\x02")), (None, GOOD))
    assert verdict(*parts, looked_up=None) == {9, 2, 1}, "all that it names, also what is known"
    assert verdict(*parts[:1], *parts[2:], looked_up=None) == {2, 1}
    assert list(verdict(*parts[:1], *parts[2:], looked_up=None, subject=None)) == [0], "nothing to look up: judged"
    both = join_frame(4, b"\x02")
    assert verdict((both, None), looked_up=None, key="full") == {}
    assert verdict((both, both), looked_up=None, key="full") == {4}, "fine as a key, perhaps not as a value"


def test_what_a_batch_may_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "IDS_MAX", 2)
    many = [(None, join_frame(number, b"\x02")) for number in range(1, 8)]
    assert verdict(*many, looked_up=None, subject=None) == {1, 2}, "no more are looked up"
    found = verdict(*many, looked_up=frozenset({1, 2}), subject=None)
    assert found == dict.fromkeys(range(2, 7), "the batch names more than 2 schemas: send smaller batches")
    with pytest.raises(MessageTooLarge, match="0 of the batch's 1 records were validated in the time"):
        verdict((None, GOOD), deadline=time.monotonic() - 1)
    monkeypatch.setitem(KNOWN, 3, Registered(frozenset({"t-value"}), SchemaError("very " * 200 + "long")))
    (reason,) = verdict((None, join_frame(3, b""))).values()
    assert len(reason) == REASON_CHARACTERS_MAX
