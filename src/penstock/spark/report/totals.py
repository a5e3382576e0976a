"""All topics of a report together.

Called by report.page and cli.report. A sum over topics some of which are unknown is the sum of the known ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from penstock.spark.report.facts import Bucket, Range, Report

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Totals:
    partitions: int
    rows: int
    stored_bytes: int | None
    incoming_bytes_a_day: float | None
    incoming_rows_a_day: float | None
    cost: float | None
    days: tuple[Bucket, ...]
    disk: tuple[Range, ...]


def add_up(report: Report) -> Totals:
    topics = report.topics
    return Totals(
        partitions=sum(one.topic.partitions for one in topics),
        rows=sum(one.topic.rows for one in topics),
        stored_bytes=_sum_known(one.topic.stored_bytes for one in topics),
        incoming_bytes_a_day=_sum_known(one.incoming_bytes_a_day for one in topics),
        incoming_rows_a_day=_sum_known(one.incoming_rows_a_day for one in topics),
        cost=_sum_known(one.cost.total if one.cost else None for one in topics),
        days=_sum_buckets([one.topic.days for one in topics]),
        disk=_sum_ranges(report),
    )


def _sum_ranges(report: Report) -> tuple[Range, ...]:
    """Topics without a forecast are taken to stay as they are; without any forecast there is none."""
    known = [one.forecast.disk_bytes for one in report.topics if one.forecast is not None]
    if not known or not all(len(series) == len(known[0]) for series in known):
        return ()
    steady = float(sum(one.topic.stored_bytes or 0 for one in report.topics if one.forecast is None))
    return tuple(
        Range(
            steady + sum(one.likely for one in day),
            steady + sum(one.low for one in day),
            steady + sum(one.high for one in day),
        )
        for day in zip(*known, strict=True)
    )


def _sum_buckets(series: list[tuple[Bucket, ...]]) -> tuple[Bucket, ...]:
    series = [buckets for buckets in series if buckets]
    if not series:
        return ()
    return tuple(
        # A day is over for all of them or for none; where a topic begins later the others still count as whole.
        Bucket(
            day[0].start_ms,
            sum(one.rows for one in day),
            _sum_known(one.bytes for one in day),
            any(one.is_complete for one in day),
        )
        for day in zip(*series, strict=True)
    )


def _sum_known(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None
