"""Checkpoints on disk, read without Spark: which batch is done, and how far each source was read.

Called by pipeline.status. Of Spark's folder it knows three things: `metadata` (the query's id), `offsets/N` (batch N
was planned up to there) and `commits/N` (batch N is done). Files of other names, and those half written, are passed
over.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from penstock.model import TopicPartition
from penstock.spark.errors import SparkFailure
from penstock.spark.offsets import Position

_LOG_BYTES_MAX = 16 << 20


@dataclass(frozen=True)
class Checkpoint:
    """`positions`: what has been read for good, one entry per source that is a topic."""

    sink: str
    query_id: str | None
    planned_batch: int | None
    done_batch: int | None
    done_at_ms: int | None
    sources: int = 0
    positions: tuple[Position, ...] = field(default_factory=tuple[Position, ...])

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Of all sources; where two read the same partition, the one that is behind."""
        found: dict[TopicPartition, int] = {}
        for position in self.positions:
            for at, offset in position.offsets.items():
                found[at] = min(offset, found.get(at, offset))
        return found


def read_checkpoints(folder: Path) -> list[Checkpoint]:
    """Of all sinks that have one."""
    if not folder.is_dir():
        return []
    return [read_checkpoint(inner) for inner in sorted(folder.iterdir()) if (inner / "offsets").is_dir()]


def read_checkpoint(folder: Path) -> Checkpoint:
    planned, done = _numbers(folder / "offsets"), _numbers(folder / "commits")
    last_done = max(done, default=None)
    sources, positions, done_at_ms = 0, (), None
    if last_done is not None:
        if last_done in planned:
            sources, positions = _read_offsets(folder / "offsets" / str(last_done))
        done_at_ms = int((folder / "commits" / str(last_done)).stat().st_mtime * 1000)
    metadata = _json((folder / "metadata").read_text()) if (folder / "metadata").is_file() else None
    return Checkpoint(
        folder.name,
        str(metadata["id"]) if metadata is not None and "id" in metadata else None,
        max(planned, default=None),
        last_done,
        done_at_ms,
        sources,
        positions,
    )


def _numbers(folder: Path) -> set[int]:
    if not folder.is_dir():
        return set()
    return {int(file.name) for file in folder.iterdir() if file.name.isdecimal() and file.is_file()}


def _read_offsets(file: Path) -> tuple[int, tuple[Position, ...]]:
    """`v1`, a line about the batch, then a line per source: its offset as JSON, or `-`."""
    if file.stat().st_size > _LOG_BYTES_MAX:
        raise SparkFailure(f"{file} is too large to be a log of offsets")
    lines = file.read_text().splitlines()
    if not lines or lines[0].strip() != "v1":
        version = lines[0].strip()[:20] if lines else "nothing"
        raise SparkFailure(f"{file} begins with {version!r}, not with v1: a newer Spark wrote it")
    positions: list[Position] = []
    for line in lines[2:]:
        offset = _json(line)
        # A file source has {"logOffset": 3}; a topic has an object per topic.
        if offset and all(isinstance(each, dict) for each in offset.values()):
            positions.append(Position.from_json(offset))
    return len(lines) - 2, tuple(positions)


def _json(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None
