"""What a running pipeline says of itself, in <checkpoint>/status.json, and the lock that lets one run have it.

Written by pipeline.running, read by pipeline.status. Laws:
- The file is replaced whole: a reader sees the old one or the new one.
- Whoever holds the lock is alive: the kernel lets go of it with the process. The file alone says only what was.
- Checkpoints that are not in a local folder (s3a://…) have neither.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from penstock.spark.errors import SparkFailure
from penstock.spark.pipeline.paths import local_folder

STATUS = "status.json"
_LOCK = ".run.lock"
# Which sources each sink had; a checkpoint is tied to them.
SOURCES = "sources.json"


class CheckpointInUse(SparkFailure):
    def __init__(self, folder: Path) -> None:
        super().__init__(f"another run of this pipeline is using its checkpoint {folder}; stop it first")


class StatusFile:
    """with StatusFile(checkpoint) as status: status.write({...})"""

    def __init__(self, checkpoint: str) -> None:
        self._folder = local_folder(checkpoint)
        self._lock: int | None = None

    def __enter__(self) -> Self:
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._lock = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as fault:
                raise SparkFailure(f"the checkpoint {self._folder} cannot be written: {fault.strerror}") from None
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                self._lock = None
                raise CheckpointInUse(self._folder) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write(self, document: Mapping[str, Any]) -> None:
        if self._folder is not None:
            _replace(self._folder / STATUS, document)

    def remember_sources(self, sink: str, sources: list[str]) -> None:
        """Refuse a sink whose sources are others than those its checkpoint was begun with."""
        if self._folder is None:
            return
        known = read_json(self._folder / SOURCES) or {}
        # A checkpoint that was deleted, or never begun, binds nobody.
        is_begun = (self._folder / sink / "offsets").is_dir()
        if is_begun and sink in known and not _is_alike(known[sink], sources):
            raise SparkFailure(
                f"sink `{sink}` now reads {_listed(sources)}, and its checkpoint {self._folder / sink} was made for "
                f"{_listed(known[sink])}: change it back, or give the pipeline a new `checkpoint` folder, which starts "
                "from the sources' beginning"
            )
        if known.get(sink) != sources:
            _replace(self._folder / SOURCES, {**known, sink: sources})


def read_status(folder: Path) -> dict[str, Any] | None:
    return read_json(folder / STATUS)


def is_running(folder: Path) -> bool:
    """Whether a process holds the lock."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def read_json(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _replace(file: Path, document: Mapping[str, Any]) -> None:
    """For its owner alone, as mkstemp has it: failures quote what rows and options held."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump(document, stream)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _is_alike(before: list[str], now: list[str]) -> bool:
    """Spark knows sources by their order. One may get another name, or more topics beside those it had, not both.

    Each is written as `name: kind what`. A pattern that was changed counts as another topic: what it finds is known to
    the brokers only.
    """

    def same(one: str, other: str) -> bool:
        (name, _, identity), (other_name, _, other_identity) = one.partition(": "), other.partition(": ")
        if identity == other_identity:
            return True
        (kind, _, topics), (other_kind, _, other_topics) = identity.partition(" "), other_identity.partition(" ")
        has_all = set(topics.split(",")) <= set(other_topics.split(","))
        return name == other_name and kind == other_kind == "topics" and has_all

    return len(before) == len(now) and all(same(*pair) for pair in zip(before, now, strict=True))


def _listed(sources: list[str]) -> str:
    return ", ".join(sources) or "nothing"
