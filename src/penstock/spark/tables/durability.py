"""What a power cut must not take: files and the folders that name them, brought to the disk.

Called by data_files in tasks, by the sinks and by upkeep on the driver.
Law: a commit is on the disk, with all that it names, before Spark hears that the batch is done. Object stores see to it
themselves: only local folders are synced.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs


def file_system(root: str) -> tuple[pafs.FileSystem, str]:
    """A path or a URI, as Arrow opens it; what an object store needs to know comes from its environment."""
    folder = local_folder(root)
    if folder is not None:
        return pafs.LocalFileSystem(), folder
    system, path = pafs.FileSystem.from_uri(root)
    return system, path.rstrip("/")


def local_folder(root: str) -> str | None:
    """The folder on this machine, or None: asked without opening an object store."""
    parts = urlsplit(root)
    if parts.scheme == "file":
        return unquote(parts.path).rstrip("/")
    return None if len(parts.scheme) > 1 and "://" in root else os.path.abspath(root)


def is_local(system: pafs.FileSystem) -> bool:
    return isinstance(system, pafs.LocalFileSystem)


def sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folders(root: str, paths: Iterable[str]) -> None:
    """The folders of these files, which are relative to `root`, up to the one that names `root` itself."""
    folders = {Path(root), Path(root).parent}
    for path in paths:
        folders |= {Path(root) / folder for folder in Path(path).parents}
    for folder in sorted(folders, reverse=True):
        # One that we may not read is none that we have made anything in.
        with contextlib.suppress(PermissionError):
            sync(str(folder))


def replace_file(path: Path, text: str) -> None:
    """All of the new text or all of the old, whatever happens."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(str(path.parent))


def sync_delta(table: str, after_version: int) -> None:
    """The versions of a Delta table past this one: the files they added, then the log itself."""
    root = local_folder(table)
    if root is None:
        return
    log = Path(root) / "_delta_log"
    added: set[str] = set()
    version = after_version + 1
    while (entry := log / f"{version:020d}.json").exists():
        added |= set(_added(entry))
        # A file that a later version took out again, and a vacuum away, is nobody's loss.
        for path in added:
            _sync_if_there(f"{root}/{path}")
        sync(str(entry))
        _sync_if_there(str(log / f"{version:020d}.checkpoint.parquet"))
        version += 1
    _sync_if_there(str(log / "_last_checkpoint"))
    sync_folders(root, [path for path in added if os.path.exists(f"{root}/{path}")])
    sync(str(log))


def _added(entry: Path) -> Iterator[str]:
    for line in entry.read_text().splitlines():
        action = json.loads(line)
        if "add" in action:
            path = unquote(action["add"]["path"])
            # Shallow clones name files of other tables by their whole address.
            if not urlsplit(path).scheme and not path.startswith("/"):
                yield path


def _sync_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        sync(path)
