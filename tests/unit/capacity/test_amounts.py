"""Amounts as people write them."""

from collections.abc import Callable

import pytest

from penstock.capacity.amounts import parse_bytes, parse_bytes_per_s, parse_rate, render_amount


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", 100),
        ("1KB", 1000),
        ("1kb", 1000),
        ("16KiB", 16384),
        ("1.5 TB", 1.5e12),
        ("2MiB", 2 << 20),
        ("1e3", 1000),
    ],
)
def test_bytes(text: str, expected: float) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("1Gbit", 125e6), ("10gbit/s", 1.25e9), ("125MB/s", 125e6), ("7", 7)])
def test_bytes_a_second(text: str, expected: float) -> None:
    assert parse_bytes_per_s(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("12000", 12000), ("20k/s", 20e3), ("86400/day", 1), ("6M/min", 1e5)])
def test_rates(text: str, expected: float) -> None:
    assert parse_rate(text) == expected


@pytest.mark.parametrize("parse", [parse_bytes, parse_bytes_per_s, parse_rate])
@pytest.mark.parametrize("text", ["", "much", "-5", "0", "nan", "inf", "1e99", "1XB", "1iB", "5/fortnight", "9" * 40])
def test_what_is_no_amount_is_said_to_be_none(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(ValueError, match=r"write|above zero"):
        parse(text)


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (21.2e12, "B", "21.2 TB"),
        (999.6e6, "B/s", "1.00 GB/s"),
        (512, "B", "512 B"),
        (131e12, "B", "131 TB"),
        (11574.07, "messages/s", "11,574 messages/s"),
        (0.2713, "cores", "0.27 cores"),
        (31, "", "31"),
    ],
)
def test_rendering(value: float, unit: str, expected: str) -> None:
    assert render_amount(value, unit) == expected
