"""The numbers a plan stands on: the package's own, and those of somebody's benchmark."""

from typing import Any

import pytest

from penstock.capacity.measured import of_this_package, with_bench, with_numbers

PRODUCED = {
    "benchmark": "produce",
    "bytes_per_s": 60e6,
    "brokers": 3,
    "partitions": 12,
    "replication_factor": 3,
    "client_limited": False,
}


def test_the_package_says_when_and_on_what_its_numbers_were_taken() -> None:
    measured = of_this_package()
    assert "measured on 20" in measured.origin
    assert "cores" in measured.origin
    # Copies cost more than none, and a request with its fsync more than one without.
    assert measured.numbers.replicated_cpu_s_per_gb > measured.numbers.write_cpu_s_per_gb
    assert measured.numbers.synced_request_cpu_us > measured.numbers.request_cpu_us


def test_a_benchmark_of_a_cluster_becomes_what_one_broker_gives() -> None:
    measured = of_this_package()
    # Three copies of 60 MB/s on three brokers: each writes 60.
    with_copies = with_bench(measured, PRODUCED, "mine.json")
    assert with_copies.numbers.write_bytes_per_s_replicated == 60e6
    assert with_copies.numbers.write_bytes_per_s == measured.numbers.write_bytes_per_s
    assert with_copies.origin.endswith("produce as in mine.json")
    assert with_copies.doubts == ()
    # One partition without copies lies on one broker, however many there are.
    alone = with_bench(measured, PRODUCED | {"partitions": 1, "replication_factor": 1, "client_limited": True}, "f")
    assert alone.numbers.write_bytes_per_s == 60e6
    assert "the client was the limit" in alone.doubts[0]
    read = with_bench(measured, PRODUCED | {"benchmark": "consume", "bytes_per_s": 900e6}, "f")
    assert read.numbers.read_bytes_per_s == 300e6


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"benchmark": "latency"},
        PRODUCED | {"bytes_per_s": 0},
        PRODUCED | {"bytes_per_s": "fast"},
        PRODUCED | {"brokers": True},
        PRODUCED | {"partitions": float("nan")},
        {name: value for name, value in PRODUCED.items() if name != "replication_factor"},
    ],
)
def test_what_is_no_result_of_a_benchmark_is_refused_by_its_name(document: Any) -> None:
    with pytest.raises(ValueError, match=r"mine\.json"):
        with_bench(of_this_package(), document, "mine.json")


@pytest.mark.parametrize(
    "changes", [{"colour": 1}, {"start_s": 0}, {"start_s": "nan"}, {"start_s": "x"}, {"start_s": 1e-300}]
)
def test_a_number_that_is_none_is_refused_by_its_name(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        with_numbers(of_this_package().numbers, changes)
