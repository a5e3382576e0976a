"""Which checkpoint an archive goes on from, and under which name its batches are counted.

Called by archive.
Laws:
- The name lives and dies with the checkpoint: whoever deletes it gets a new name, whose batches count from 0 again.
- A checkpoint is trusted only where the table holds nothing beyond it. An archive of other topics, or one with another
  checkpoint, may have written the same topic since; then a new one is begun, inside the folder, behind what is held.
"""

import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs as pafs

from penstock.model import TopicPartition
from penstock.spark.offsets import Position
from penstock.spark.tables.durability import file_system, is_local, replace_file, sync_folders
from penstock.spark.tables.markers import Writers

_NAME_FILE = "penstock-archive.json"
_AGAIN = "again-"


class Chosen(NamedTuple):
    """`is_new`: the checkpoint has yet to be begun, at the offsets that the table holds."""

    folder: str
    name: str
    is_new: bool


def choose_checkpoint(
    base: str, writers: Callable[[str], Writers], held: Callable[[], Mapping[TopicPartition, int]]
) -> Chosen:
    """`held` gives the next offset of each partition in the table; it reads all of it, so it is asked in need only."""
    system, plain = file_system(base)
    numbers = _numbers(system, plain, _AGAIN)
    chosen = _opened(f"{base}/{_AGAIN}{max(numbers)}" if numbers else base)
    if chosen.is_new:
        return chosen
    found = writers(chosen.name)
    if found.last == chosen.name or not is_behind(_reached(chosen.folder, found.stored), held()):
        return chosen
    return _opened(f"{base}/{_AGAIN}{max(numbers, default=0) + 1}")


def is_behind(reached: Mapping[TopicPartition, int], held: Mapping[TopicPartition, int]) -> bool:
    """Whether the table has records that the checkpoint would read again."""
    return any(offset > reached.get(at, 0) for at, offset in held.items())


def _opened(folder: str) -> Chosen:
    system, plain = file_system(folder)
    # Spark purges old entries, so the first one is no sign.
    is_new = not _numbers(system, f"{plain}/offsets", "")
    path = f"{plain}/{_NAME_FILE}"
    if system.get_file_info(path).type == pafs.FileType.File:
        return Chosen(folder, json.loads(_text(system, path))["name"], is_new)
    name = f"archive-{uuid.uuid4().hex}"
    text = json.dumps({"name": name})
    if is_local(system):
        os.makedirs(plain, exist_ok=True)
        replace_file(Path(path), text)
        sync_folders(plain, ())
    else:
        with system.open_output_stream(path) as stream:
            stream.write(text.encode())
    return Chosen(folder, name, is_new)


def _reached(folder: str, stored: int | None) -> Mapping[TopicPartition, int]:
    """Where the last batch ends that is done: Spark says so, or the table, which hears of it first.

    A batch that was only planned does not count: Spark would run it again.
    """
    system, plain = file_system(folder)
    done = _numbers(system, f"{plain}/commits", "")
    last = max(done | ({stored} if stored is not None else set()), default=None)
    if last not in _numbers(system, f"{plain}/offsets", ""):
        return {}
    lines = _text(system, f"{plain}/offsets/{last}").splitlines()
    # The version, a line about the batch, then the source's own.
    return Position.from_json(lines[2]).offsets


def _numbers(system: pafs.FileSystem, folder: str, prefix: str) -> set[int]:
    found = system.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    rests = [one.base_name.removeprefix(prefix) for one in found if one.base_name.startswith(prefix)]
    return {int(rest) for rest in rests if rest.isdecimal()}


def _text(system: Any, path: str) -> str:
    with system.open_input_stream(path) as stream:
        return stream.read().decode()
