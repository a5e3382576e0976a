"""Whose directory this is: the topic's id, in a file beside the segments.

Called by log.partition_log, log.directory, log.recovery and cli.side_inspection.
"""

from pathlib import Path
from uuid import UUID

from penstock.disk import Disk
from penstock.model import TopicId
from penstock.records.checksum import crc32c

TOPIC_ID_FILE = "partition.metadata"


def write_topic_id(disk: Disk, directory: Path, topic_id: TopicId) -> None:
    """Say whose directory this is. Durable with the log's first sync, before anything in it is acknowledged."""
    said = f"version: 0\ntopic_id: {topic_id}\n".encode()
    content = said + f"crc: {crc32c(said):08x}\n".encode()
    file = disk.open(directory / TOPIC_ID_FILE, create=True)
    try:
        file.truncate(len(content))
        file.write_at(0, (content,))
    finally:
        file.close()


def sync_topic_id(disk: Disk, directory: Path) -> None:
    file = disk.open(directory / TOPIC_ID_FILE)
    try:
        file.sync()
    finally:
        file.close()


def read_topic_id(disk: Disk, directory: Path) -> TopicId | None:
    """Whose directory this is; None if a crash left it unsaid (before the first sync only) or it is damaged."""
    path = directory / TOPIC_ID_FILE
    if not disk.exists(path):
        return None
    said, mark, checksum = disk.read_file(path).rpartition(b"crc: ")
    if not mark or checksum != f"{crc32c(said):08x}\n".encode():
        return None
    return UUID(said.decode().splitlines()[1].removeprefix("topic_id: "))
