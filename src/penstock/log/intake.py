"""What a topic's settings ask of a batch that a producer sent: size, time, keys, compression.

Called by handlers.produce, handlers.validated_produce and validation.dead_letters, between the wire and the log. With
default settings nothing here unpacks a record.
"""

from penstock.config import TopicConfig
from penstock.errors import InvalidTimestamp, MessageTooLarge, RecordListTooLarge
from penstock.records.batch import TIMESTAMP_TYPE_MASK, BatchHeader, check_produced, read_header, set_log_append_time
from penstock.records.compression import Codec
from penstock.records.record import recompress, validate_records

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LONG_MAX = 2**63 - 1
BROKERS_TIMESTAMP = "the topic keeps the producer's timestamps, and the batch says it has the broker's"
RECORD_BYTES_MIN = 7  # a record without key, value and headers


def admit(batch: memoryview, config: TopicConfig, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The batch as the log will keep it, with its header; or the error it has earned."""
    if len(batch) > config.max_message_bytes:
        raise MessageTooLarge(f"the batch has {len(batch)} bytes, max.message.bytes is {config.max_message_bytes}")
    header = check_produced(batch)
    if not config.keeps_batches_as_sent:
        batch, header = _adapt(batch, header, config, now_ms)
    elif header.attributes & TIMESTAMP_TYPE_MASK:
        raise InvalidTimestamp(BROKERS_TIMESTAMP)
    if header.max_timestamp > now_ms + config.timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
            f"({config.timestamp_after_max_ms}) ahead of the broker's clock"
        )
    if len(batch) > config.max_message_bytes:
        # Hundreds of bytes may unfold to megabytes in a topic that keeps its records uncompressed.
        raise MessageTooLarge(
            f"compressed as the topic wants it the batch has {len(batch)} bytes, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
    return batch, header


def _adapt(batch: memoryview, header: BatchHeader, config: TopicConfig, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """Look inside where the topic asks for it, and make the batch what the topic keeps."""
    must_look_inside = config.compact or config.timestamp_before_max_ms != _LONG_MAX
    # Also by what was sent: a kilobyte that claims to be a whole segment is a bomb, not a batch.
    ratio_max = config.decompression_ratio_max
    unpacked_max = min(config.unpacked_bytes_max, max(config.max_message_bytes, len(batch) * ratio_max))
    if must_look_inside:
        if header.record_count > config.max_message_bytes // RECORD_BYTES_MIN:
            raise RecordListTooLarge(f"{header.record_count} records in one batch are more than are looked through")
        earliest = max(now_ms - config.timestamp_before_max_ms, 0)
        validate_records(batch, header, unpacked_max, keys_required=config.compact, timestamp_min=earliest)
    if config.compression_type != "producer":
        wanted = _CODECS[config.compression_type]
        if wanted != header.compression:
            batch = memoryview(recompress(batch, header, wanted, _level(config), unpacked_max))
            header = read_header(batch)
    if config.message_timestamp_type == "LogAppendTime":
        set_log_append_time(batch, now_ms)
        header = read_header(batch)
    elif header.is_log_append_time:
        raise InvalidTimestamp(BROKERS_TIMESTAMP)
    return batch, header


def _level(config: TopicConfig) -> int | None:
    match config.compression_type:
        case "gzip":
            return config.compression_gzip_level if config.compression_gzip_level >= 0 else None
        case "lz4":
            return config.compression_lz4_level
        case "zstd":
            return config.compression_zstd_level
        case _:
            return None
