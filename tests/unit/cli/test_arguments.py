"""What people type, read or refused."""

from datetime import UTC, datetime

import pytest
import typer

from penstock.admin.offsets import TopicPartitions
from penstock.admin.text import render_moment
from penstock.cli.arguments import parse_duration_ms, parse_moment_ms, parse_pairs, parse_topic_partitions
from penstock.config.addresses import parse_bootstrap
from penstock.model import Endpoint


def test_a_value_may_hold_equals_signs_and_the_last_of_a_name_wins() -> None:
    assert parse_pairs(["a=1", "b=x=y", "a=2", "c="]) == {"a": "2", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["a", "=1", " =1"])
def test_a_pair_without_a_name_or_a_value_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_pairs([text])


def test_partitions_may_follow_a_topic() -> None:
    assert parse_topic_partitions("orders") == TopicPartitions("orders", ())
    assert parse_topic_partitions("orders:3,0,3") == TopicPartitions("orders", (0, 3))


@pytest.mark.parametrize("text", ["", ":1", "orders:", "orders:x", "orders:1,", "orders:-1"])
def test_partitions_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_topic_partitions(text)


def test_bootstrap_addresses_take_kafkas_port_by_default() -> None:
    expected = [Endpoint("a", 9092), Endpoint("b", 1), Endpoint("::1", 2)]
    assert parse_bootstrap("a, PLAINTEXT://b:1,[::1]:2") == expected
    with pytest.raises(ValueError, match="no address"):
        parse_bootstrap(" , ")


def test_a_moment_is_milliseconds_or_a_date() -> None:
    assert parse_moment_ms("1700000000000") == 1_700_000_000_000
    assert parse_moment_ms("2024-05-17T08:30:00Z") == int(datetime(2024, 5, 17, 8, 30, tzinfo=UTC).timestamp() * 1000)
    assert parse_moment_ms("2024-05-17T10:30:00+02:00") == parse_moment_ms("2024-05-17T08:30:00Z")
    assert parse_moment_ms("2024-05-17") == int(datetime(2024, 5, 17).timestamp() * 1000)
    with pytest.raises(typer.BadParameter, match="yesterday"):
        parse_moment_ms("yesterday")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("250ms", 250),
        ("PT1H30M", 5_400_000),
        ("P1DT1S", 86_401_000),
        ("P2W", 1_209_600_000),
    ],
)
def test_a_length_of_time_is_written_in_either_way(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "90", "P", "PT", "-5s", "1y"])
def test_a_length_of_time_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration_ms(text)


def test_moments_are_shown_in_utc_and_impossible_ones_as_they_are() -> None:
    assert render_moment(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert render_moment(-1) is None
    assert render_moment(None) is None
    assert render_moment(2**62) == str(2**62)
