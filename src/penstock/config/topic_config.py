"""A topic's settings: the table, and one topic's values once its own and the broker's are put together.

Called by log, replication and handlers, which read plain attributes; made by BrokerConfig.topic() only.
Names, defaults and limits are those of Kafka 4.3 unless a row says otherwise.
"""

import re
from dataclasses import dataclass
from functools import cached_property, partial

from penstock.config import setting
from penstock.config.setting import LONG_MAX, Scope
from penstock.errors import InvalidConfig

MILLISECONDS_PER_MINUTE = 60_000
MILLISECONDS_PER_HOUR = 3_600_000

# Kafka 4 asks for 1 MiB. Smaller segments only serve tests, of which our users write many.
SEGMENT_BYTES_MIN = 1024

CLEANUP_POLICIES = ("compact", "delete")
COMPRESSION_TYPES = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
DURABILITIES = ("fsync", "fsync-all", "page-cache")
VALIDATIONS = ("off", "id", "full")
VALIDATION_FAILURES = ("reject", "dead-letter", "mark")
SUBJECT_STRATEGIES = ("topic", "any")
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

_integer = partial(setting.integer, scope=Scope.TOPIC)
_long = partial(setting.long, scope=Scope.TOPIC)
_double = partial(setting.double, scope=Scope.TOPIC)
_flag = partial(setting.flag, scope=Scope.TOPIC)
_choice = partial(setting.choice, scope=Scope.TOPIC)
_choices = partial(setting.choices, scope=Scope.TOPIC)
_items = partial(setting.items, scope=Scope.TOPIC)
_text = partial(setting.text, scope=Scope.TOPIC)


def _from(*names: str) -> tuple[tuple[str, int], ...]:
    """Broker settings that hold a topic's default; the unit is read off the name."""
    units = {"minutes": MILLISECONDS_PER_MINUTE, "hours": MILLISECONDS_PER_HOUR}
    return tuple((name, units.get(name.rpartition(".")[2], 1)) for name in names)


def gzip_level_fault(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "no gzip level: -1 for gzip's own default, or 1 to 9"


def _remote_fault(enabled: bool) -> str | None:
    # Accepting it would promise a second copy of the data that nobody makes.
    return "there is no remote storage to enable" if enabled else None


def _topic_name_fault(name: str) -> str | None:
    if not name or (TOPIC_NAME.fullmatch(name) and name not in (".", "..")):
        return None
    return "no name of a topic: up to 249 letters, digits, '.', '_' and '-'"


@dataclass(frozen=True, kw_only=True)
class TopicConfig:
    # A row reads as name, default, meaning, limits; one argument a line would hide the table.
    # fmt: off
    cleanup_policy: frozenset[str] = _choices(
        "cleanup.policy", frozenset({"delete"}), CLEANUP_POLICIES, "What happens to old records: `delete` drops "
        "segments past the retention limits, `compact` keeps the last record of each key, both together do both, an "
        "empty list keeps everything.", broker_names=_from("log.cleanup.policy"))
    compression_type: str = _choice(
        "compression.type", "producer", COMPRESSION_TYPES, "The compression of batches in the log. `producer` keeps "
        "each batch as it was sent; any other value makes the broker compress what arrives differently, which costs it "
        "CPU.", broker_names=_from("compression.type"))
    compression_gzip_level: int = _integer(
        "compression.gzip.level", -1, "The level when `compression.type` is gzip; -1 is gzip's own default.",
        check=gzip_level_fault, broker_names=_from("compression.gzip.level"))
    compression_lz4_level: int = _integer(
        "compression.lz4.level", 9, "The level when `compression.type` is lz4.", low=1, high=17,
        broker_names=_from("compression.lz4.level"))
    compression_zstd_level: int = _integer(
        "compression.zstd.level", 3, "The level when `compression.type` is zstd.", low=-131072, high=22,
        broker_names=_from("compression.zstd.level"))
    delete_retention_ms: int = _long(
        "delete.retention.ms", 86_400_000, "How long a compacted log keeps tombstones. A consumer that starts at the "
        "beginning must reach the end within this time to see every deletion.", low=0,
        broker_names=_from("log.cleaner.delete.retention.ms"))
    file_delete_delay_ms: int = _long(
        "file.delete.delay.ms", 60_000, "How long the files of a removed segment stay on disk.", low=0,
        broker_names=_from("log.segment.delete.delay.ms"))
    flush_messages: int = _long(
        "flush.messages", LONG_MAX, "Force an fsync after this many records, whatever the producers asked for.", low=1,
        broker_names=_from("log.flush.interval.messages"))
    flush_ms: int = _long(
        "flush.ms", LONG_MAX, "Force an fsync when a record has been in the page cache this long.", low=0,
        broker_names=_from("log.flush.interval.ms", "log.flush.scheduler.interval.ms"))
    follower_replication_throttled_replicas: tuple[str, ...] = _items(
        "follower.replication.throttled.replicas", (), "Replicas whose catching up is slowed while a reassignment "
        "runs, as partition:broker pairs or `*`.")
    index_interval_bytes: int = _integer(
        "index.interval.bytes", 4096, "One index entry for about this many bytes of log.", low=0,
        broker_names=_from("log.index.interval.bytes"))
    leader_replication_throttled_replicas: tuple[str, ...] = _items(
        "leader.replication.throttled.replicas", (), "Leaders that feed replicas slowly which are not in sync, while a "
        "reassignment runs, as partition:broker pairs or `*`.")
    local_retention_bytes: int = _long(
        "local.retention.bytes", -2, "How much of a tiered log stays on local disk; -2 follows `retention.bytes`.",
        low=-2, broker_names=_from("log.local.retention.bytes"), honoured=False)
    local_retention_ms: int = _long(
        "local.retention.ms", -2, "How long a tiered log stays on local disk; -2 follows `retention.ms`.", low=-2,
        broker_names=_from("log.local.retention.ms"), honoured=False)
    max_compaction_lag_ms: int = _long(
        "max.compaction.lag.ms", LONG_MAX, "The longest a record may stay in the log without being open to compaction.",
        low=1, broker_names=_from("log.cleaner.max.compaction.lag.ms"))
    max_message_bytes: int = _integer(
        "max.message.bytes", 1_048_588, "The largest record batch accepted, compressed as it was sent.", low=0,
        broker_names=_from("message.max.bytes"))
    timestamp_after_max_ms: int = _long(
        "message.timestamp.after.max.ms", 3_600_000, "How far a record's timestamp may lie in the future. Records "
        "beyond it would keep their segment from ever expiring.", low=0,
        broker_names=_from("log.message.timestamp.after.max.ms"))
    timestamp_before_max_ms: int = _long(
        "message.timestamp.before.max.ms", LONG_MAX, "How far a record's timestamp may lie in the past.", low=0,
        broker_names=_from("log.message.timestamp.before.max.ms"))
    message_timestamp_type: str = _choice(
        "message.timestamp.type", "CreateTime", TIMESTAMP_TYPES, "Whose clock stamps a record: the producer's "
        "(`CreateTime`) or the broker's (`LogAppendTime`).", broker_names=_from("log.message.timestamp.type"))
    min_cleanable_dirty_ratio: float = _double(
        "min.cleanable.dirty.ratio", 0.5, "Compact once this share of the log has not been compacted yet.", low=0,
        high=1, broker_names=_from("log.cleaner.min.cleanable.ratio"))
    min_compaction_lag_ms: int = _long(
        "min.compaction.lag.ms", 0, "The shortest time a record stays in the log before compaction may remove it.",
        low=0, broker_names=_from("log.cleaner.min.compaction.lag.ms"))
    min_insync_replicas: int = _integer(
        "min.insync.replicas", 1, "How many replicas must hold a batch before `acks=all` is answered.", low=1,
        broker_names=_from("min.insync.replicas"))
    durability: str = _choice(
        "penstock.durability", "fsync", DURABILITIES, "When `acks=all` is answered where only one replica is in sync: "
        "`fsync` after the batch is on stable storage, `page-cache` once the kernel has it, which a power cut or a "
        "kernel crash may lose. With more replicas in sync, once all of them have it; with `fsync-all` once all of "
        "them have it on stable storage, which also a power cut of all brokers at once does not lose.",
        broker_names=_from("penstock.durability"))
    decompression_ratio_max: int = _integer(
        "penstock.decompression.ratio.max", 32, "A batch may not decompress to more than `max.message.bytes` times "
        "this, wherever the broker has to look inside.", low=1,
        broker_names=_from("penstock.decompression.ratio.max"))
    schema_validation: str = _choice(
        "penstock.schema.validation", "off", VALIDATIONS, "What a record's value must be to be written: with `id` it "
        "begins with the id of a registered schema, with `full` it also fits that schema. A null value always passes.")
    schema_key_validation: str = _choice(
        "penstock.schema.key.validation", "off", VALIDATIONS, "The same for keys.")
    schema_on_failure: str = _choice(
        "penstock.schema.validation.on.failure", "reject", VALIDATION_FAILURES, "What happens to a record that is not "
        "so: `reject` refuses its whole batch and says why, `dead-letter` writes it to another topic and the rest of "
        "its batch to this one, `mark` writes it with the reason in the header penstock.schema.error.")
    schema_dead_letter_topic: str = _text(
        "penstock.schema.dead.letter.topic", "", "The topic for such records with `dead-letter`, made when it is "
        "first needed; it must not validate itself. Empty for the topic's own name with .dead-letter behind it.",
        check=_topic_name_fault)
    schema_subject_strategy: str = _choice(
        "penstock.schema.subject.strategy", "topic", SUBJECT_STRATEGIES, "Under which subject a schema must be "
        "registered: with `topic` under the topic's name with -value or -key behind it, with `any` under whichever.")
    preallocate: bool = _flag(
        "preallocate", False, "Reserve a segment's whole size on disk when it is created.",
        broker_names=_from("log.preallocate"), honoured=False)
    remote_log_copy_disable: bool = _flag(
        "remote.log.copy.disable", False, "Stop copying a tiered log to remote storage.", honoured=False)
    remote_log_delete_on_disable: bool = _flag(
        "remote.log.delete.on.disable", False, "Delete the remote data when tiering is switched off.", honoured=False)
    remote_storage_enable: bool = _flag(
        "remote.storage.enable", False, "Copy closed segments to remote storage. Only `false` is accepted.",
        check=_remote_fault, honoured=False)
    retention_bytes: int = _long(
        "retention.bytes", -1, "The size at which a partition's oldest segments are dropped; -1 is no limit.", low=-1,
        broker_names=_from("log.retention.bytes"))
    retention_ms: int = _long(
        "retention.ms", 604_800_000, "The age at which a partition's oldest segments are dropped; -1 is no limit.",
        low=-1, broker_names=_from("log.retention.ms", "log.retention.minutes", "log.retention.hours"))
    segment_bytes: int = _integer(
        "segment.bytes", 1 << 30, "The size at which a new segment begins. Retention and compaction work on whole "
        "closed segments. Kafka asks for 1 MiB or more.", low=SEGMENT_BYTES_MIN,
        broker_names=_from("log.segment.bytes"))
    segment_index_bytes: int = _integer(
        "segment.index.bytes", 10 << 20, "The size of an index at which a new segment begins.", low=4,
        broker_names=_from("log.index.size.max.bytes"))
    segment_jitter_ms: int = _long(
        "segment.jitter.ms", 0, "Up to this much is taken off `segment.ms`, so that not all logs roll at once.", low=0,
        broker_names=_from("log.roll.jitter.ms", "log.roll.jitter.hours"))
    segment_ms: int = _long(
        "segment.ms", 604_800_000, "The age at which a new segment begins, full or not.", low=1,
        broker_names=_from("log.roll.ms", "log.roll.hours"))
    unclean_leader_election_enable: bool = _flag(
        "unclean.leader.election.enable", False, "Let a replica that is not in sync lead when no other is left, at the "
        "price of acknowledged records.", broker_names=_from("unclean.leader.election.enable"))
    # fmt: on

    @cached_property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @cached_property
    def keeps_batches_as_sent(self) -> bool:
        """Nothing the topic asks for needs a look into a batch or a change of it."""
        return (
            not self.compact
            and self.timestamp_before_max_ms == LONG_MAX
            and self.compression_type == "producer"
            and self.message_timestamp_type == "CreateTime"
        )

    @cached_property
    def validates(self) -> bool:
        """Whether records are held against schemas before they are written; asked on every produce."""
        return self.schema_validation != "off" or self.schema_key_validation != "off"

    @cached_property
    def segment_age_max_ms(self) -> int:
        # Only what is closed can be compacted.
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def unpacked_bytes_max(self) -> int:
        """What a batch may become when it is decompressed (TRAPS S3)."""
        return self.max_message_bytes * self.decompression_ratio_max

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    def check_together(self) -> None:
        """Refuse values that are right alone and wrong in company."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is more than "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )


TOPIC_SETTINGS = setting.settings_of(TopicConfig)
