"""The mark of a clean stop: how every log ended, so that the next start need not look into any.

Called by log.directory. A mark that is damaged is none: then every log is checked.
"""

import json
from collections.abc import Mapping

from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import CleanEnd
from penstock.model import TopicPartition
from penstock.records.checksum import crc32c

CLEAN_STOP = "clean-stop.json"


def clean_end(log: PartitionLog) -> CleanEnd:
    active = log.segments[-1]
    return CleanEnd(active.base_offset, active.size, active.next_offset, active.first_timestamp, active.max_timestamp)


def encode_ends(ends: Mapping[TopicPartition, CleanEnd]) -> bytes:
    rows = [
        [
            at.topic,
            at.partition,
            end.active_base,
            end.active_size,
            end.next_offset,
            end.first_timestamp,
            end.max_timestamp,
        ]
        for at, end in ends.items()
    ]
    return json.dumps({"version": 1, "crc": crc32c(json.dumps(rows).encode()), "logs": rows}).encode()


def decode_ends(content: bytes) -> dict[TopicPartition, CleanEnd] | None:
    """None if the mark is damaged."""
    try:
        mark = json.loads(content)
        if crc32c(json.dumps(mark["logs"]).encode()) != mark["crc"]:
            return None
        return {TopicPartition(row[0], row[1]): CleanEnd(*row[2:]) for row in mark["logs"]}
    except (ValueError, KeyError, TypeError, IndexError):
        return None
