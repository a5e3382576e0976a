"""The options of a read or a write, parsed once: what is in them is right, or a BadOption says what is not.

Called by source.py in the driver; what it returns goes to the workers with the reader, so it is plain data.
Option names arrive in lower case: PySpark keeps them in a dictionary that lowers every key (its CaseInsensitiveDict),
and so names are compared that way here, whoever hands them over.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, cast

from penstock.spark.bounds import Bound, Isolation, Unmatched, check_batch_bounds, parse_bound
from penstock.spark.client_names import REFUSED_OF_READERS, REFUSED_OF_WRITERS, misspelt
from penstock.spark.client_settings import connection_settings, librdkafka_settings
from penstock.spark.errors import BadOption
from penstock.spark.offsets import parse_assignment
from penstock.spark.option_table import BY_LOWER_NAME, Scope
from penstock.spark.subscription import Subscription, compile_pattern

if TYPE_CHECKING:
    from penstock.spark.fetching import ConnectionSettings
    from penstock.spark.formats.options import FormatOptions

log = logging.getLogger(__name__)

Delivery = Literal["exactly-once", "at-least-once"]
OnReplayDiffers = Literal["fail", "skip"]

GROUP_PREFIX = "spark-"
NO_GROUP = "none"
FETCH_BYTES = 8 << 20
# A reply of this size, and what comes with it, is still taken by fetching.connection.
FETCH_BYTES_MAX = 256 << 20
_DURATION_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_KAFKA = "kafka."


@dataclass(frozen=True, slots=True)
class ReadOptions:
    connection: "ConnectionSettings"
    librdkafka: dict[str, str] = field(repr=False)
    subscription: Subscription
    start: Bound
    end: Bound
    unmatched: Unmatched
    isolation: Isolation
    fail_on_data_loss: bool
    include_headers: bool
    formats: "FormatOptions"
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    retries: int
    retry_interval_s: float
    poll_timeout_s: float
    cache_s: float
    # The group that shows progress: NO_GROUP for none, None where Spark has to be asked what the query is called.
    commit_group: str | None
    fetch_bytes: int


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: "ConnectionSettings"
    librdkafka: dict[str, str] = field(repr=False)
    topic: str | None
    delivery: Delivery
    transactional_id_prefix: str
    transaction_timeout_ms: int
    on_replay_differs: OnReplayDiffers
    query_name: str | None


def read_options(options: Mapping[str, str], *, is_streaming: bool) -> ReadOptions:
    from penstock.spark.formats.options import format_options

    given = _Given(options, "stream" if is_streaming else "batch")
    kafka = given.kafka_options(REFUSED_OF_READERS)
    start = parse_bound(given.values, "starting", "latest" if is_streaming else "earliest")
    end = parse_bound(given.values, "ending", "latest")
    if not is_streaming:
        check_batch_bounds(start, end)
    least, most = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise BadOption(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    isolation = given.values.get("isolation.level") or kafka.get("isolation.level")
    levels = ("read_committed", "read_uncommitted")
    return ReadOptions(
        connection=connection_settings(kafka),
        librdkafka=librdkafka_settings(kafka),
        subscription=_subscription(given.values),
        start=start,
        end=end,
        unmatched=cast("Unmatched", given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))),
        isolation=cast("Isolation", _one_of("isolation.level", isolation or "read_committed", levels)),
        fail_on_data_loss=given.flag("failOnDataLoss"),
        include_headers=given.flag("includeHeaders"),
        formats=format_options(options),
        min_partitions=given.number("minPartitions"),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_s=given.duration_s("maxTriggerDelay"),
        retries=given.number("fetchOffset.numRetries", least=0) or 0,
        retry_interval_s=(given.number("fetchOffset.retryIntervalMs", least=0) or 0) / 1000,
        poll_timeout_s=(given.number("kafkaConsumer.pollTimeoutMs") or 0) / 1000,
        cache_s=(given.number("latestOffsetCacheMs", least=0) or 0) / 1000,
        commit_group=_commit_group(given.values),
        fetch_bytes=_fetch_bytes(kafka),
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    given = _Given(options, "write")
    kafka = given.kafka_options(REFUSED_OF_WRITERS)
    return WriteOptions(
        connection=connection_settings(kafka),
        librdkafka=librdkafka_settings(kafka),
        topic=given.values.get("topic", "").strip() or None,
        delivery=cast("Delivery", given.choice("delivery", ("exactly-once", "at-least-once"))),
        transactional_id_prefix=given.values.get("transactional.id.prefix", "").strip() or "penstock-spark",
        transaction_timeout_ms=given.number("transaction.timeout.ms") or 900_000,
        on_replay_differs=cast("OnReplayDiffers", given.choice("on.replay.differs", ("fail", "skip"))),
        query_name=given.values.get("queryname") or None,
    )


def check_read_options(options: Mapping[str, str]) -> None:
    """BadOption for what is wrong in a batch and in a stream, before it is known which of them it will be."""
    try:
        read_options(options, is_streaming=True)
    except BadOption:
        read_options(options, is_streaming=False)


def check_names(options: Mapping[str, str]) -> None:
    """BadOption for a name that nobody knows, before it is known what the options are for."""
    formats = _format_names()
    for name in options:
        if not name.lower().startswith(_KAFKA) and name.lower() not in formats | BY_LOWER_NAME.keys():
            raise BadOption.unknown(name, [*(option.name for option in BY_LOWER_NAME.values()), *formats])


class _Given:
    """The options as they came, checked for names nobody knows."""

    def __init__(self, options: Mapping[str, str], scope: Scope) -> None:
        self.values = {name.lower(): value for name, value in options.items()}
        self._scope = scope
        check_names(options)
        for name in self.values.keys() & BY_LOWER_NAME.keys():
            self._check_scope(BY_LOWER_NAME[name].name, BY_LOWER_NAME[name].scopes)

    def _check_scope(self, name: str, scopes: frozenset[Scope]) -> None:
        if self._scope in scopes:
            return
        if self._scope == "stream" and name.startswith("ending"):
            raise BadOption(f"{name} is for batches: a stream has no end")
        # As Spark's connector does: said, and left without an effect.
        log.warning("option %s has no effect here", name)

    def kafka_options(self, refused: Mapping[str, str]) -> dict[str, str]:
        kafka = {name[len(_KAFKA) :]: value for name, value in self.values.items() if name.startswith(_KAFKA)}
        for name in kafka:
            if name in refused:
                raise BadOption(f"kafka.{name} is not supported: {refused[name]}")
            if meant := misspelt(name):
                raise BadOption(f"unknown option kafka.{name}: did you mean kafka.{meant}?")
        return kafka

    def _text(self, name: str) -> str:
        return self.values.get(name.lower(), BY_LOWER_NAME[name.lower()].default).strip()

    def number(self, name: str, least: int = 1) -> int | None:
        text = self._text(name)
        if not text:
            return None
        if not text.isdecimal() or not least <= int(text) < 1 << 63:
            raise BadOption(f"{name} is {text}; it must be a whole number of at least {least}")
        return int(text)

    def flag(self, name: str) -> bool:
        return _one_of(name, self._text(name), ("true", "false")) == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        return _one_of(name, self._text(name), choices)

    def duration_s(self, name: str) -> float:
        text = self._text(name)
        matched = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
        if matched is None or (matched[2] or "ms") not in _DURATION_MS:
            raise BadOption(f"{name} is {text}; write a duration such as 30s, 15m or 2h")
        return int(matched[1]) * _DURATION_MS[matched[2] or "ms"] / 1000


def _one_of(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text.strip().lower() not in choices:
        raise BadOption(f"{name} is {text}; there are {', '.join(choices)}")
    return text.strip().lower()


def _subscription(values: Mapping[str, str]) -> Subscription:
    ways = ("subscribe", "subscribePattern", "assign")
    given = [way for way in ways if way.lower() in values]
    if len(given) != 1:
        raise BadOption(f"one of {', '.join(ways)} is needed" + (f", not {' and '.join(given)}" if given else ""))
    text = values[given[0].lower()].strip()
    if given == ["assign"]:
        try:
            return Subscription(assigned=parse_assignment(text))
        except ValueError as why:
            raise BadOption(str(why)) from None
    if given == ["subscribePattern"]:
        try:
            compile_pattern(text)
        except re.error as why:
            raise BadOption(f"subscribePattern {text} is not a regular expression: {why}") from None
        if not text:
            raise BadOption("subscribePattern is empty")
        return Subscription(pattern=text)
    names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
    if not names:
        raise BadOption("subscribe names no topic")
    return Subscription(names=names)


def _commit_group(values: Mapping[str, str]) -> str | None:
    # Never kafka.group.id: Spark's source commits nothing to it, and it is often the group of other consumers, named
    # for the sake of its ACLs. Commits of ours would move them.
    if group := values.get("commit.group.id", "").strip():
        return NO_GROUP if group.lower() == NO_GROUP else group
    name = values.get("queryname", "").strip()
    return GROUP_PREFIX + name if name else None


def _fetch_bytes(kafka: Mapping[str, str]) -> int:
    for name in ("max.partition.fetch.bytes", "fetch.message.max.bytes"):
        if name in kafka:
            if not kafka[name].isdecimal() or not 0 < int(kafka[name]) < 1 << 31:
                raise BadOption(f"kafka.{name} is {kafka[name]}; it must be a number of bytes")
            return min(int(kafka[name]), FETCH_BYTES_MAX)
    return FETCH_BYTES


def _format_names() -> frozenset[str]:
    from penstock.spark.formats.options import FORMAT_OPTION_NAMES

    return frozenset(name.lower() for name in FORMAT_OPTION_NAMES)
