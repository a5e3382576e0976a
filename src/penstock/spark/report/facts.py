"""The nouns of a report: what was measured of each topic, and what follows from it.

Called by every file of this room and by cli.report. Plain values; `as_document` turns them into what --json prints.
Laws:
- A count of rows is a count of offsets: markers of transactions and what compaction removed are inside it.
- Bytes are None where no broker told the size of its logs; nothing is made up for them.
- All buckets are UTC, in order, without a gap; the last one is the one that is not over yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Bucket:
    """What came within a day or an hour and is still there."""

    start_ms: int
    rows: int
    bytes: int | None
    # False for the bucket of now, and for those that began before the oldest record that is left.
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """Those of a topic that decide how long records stay. None where they were not told or do not limit."""

    cleanup_policy: str | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None

    @property
    def is_compacted(self) -> bool:
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return self.cleanup_policy is None or "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True)
class DeepFacts:
    """What only reading every record tells (--deep)."""

    rows: int
    null_keys: int
    null_values: int
    keys_about: int
    value_bytes_mean: float
    value_bytes_percentiles: dict[str, int]
    key_bytes: int
    value_bytes: int
    compression_ratio: float | None


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through the complete days: y = level + slope * day, with day 0 the first of them."""

    days: int
    slope: float
    level: float
    error: float
    mean_day: float
    spread: float


@dataclass(frozen=True, slots=True)
class Range:
    """A forecast: what is likely, and between which bounds 95 of 100 should lie if nothing changes."""

    likely: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where a topic will be, one entry per day from tomorrow on."""

    disk_bytes: tuple[Range, ...]
    incoming_bytes: tuple[Range, ...]
    partitions_now: int
    partitions_needed: int
    partitions_needed_at_most: int


@dataclass(frozen=True, slots=True)
class Cost:
    """A month of 30 days, in the currency of the price file."""

    storage: float
    incoming: float
    outgoing: float
    partitions: float

    @property
    def total(self) -> float:
        return self.storage + self.incoming + self.outgoing + self.partitions


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    replicas: float | None
    rows: int
    bytes: int | None
    stored_bytes: int | None
    oldest_ms: int | None
    days: tuple[Bucket, ...]
    hours: tuple[Bucket, ...]
    settings: Settings = Settings()


@dataclass(frozen=True, slots=True)
class Judged:
    """A topic with what follows from its numbers."""

    topic: Topic
    trend: Trend | None
    incoming_bytes_a_day: float | None
    incoming_rows_a_day: float | None
    forecast: Forecast | None
    cost: Cost | None
    deep: DeepFacts | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    bootstrap: str
    made_at_ms: int
    horizon_days: int
    currency: str | None
    topics: tuple[Judged, ...]
    notes: tuple[str, ...]


def as_document(value: Any) -> Any:
    """Dataclasses as mappings, for JSON; what they compute (a total) is not left out."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {field.name: as_document(getattr(value, field.name)) for field in fields(value)}
        return found | {"total": value.total} if isinstance(value, Cost) else found
    if isinstance(value, dict):
        return {str(name): as_document(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [as_document(one) for one in value]
    return value
