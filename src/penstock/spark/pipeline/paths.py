"""Which paths are a local disk's, and which have a scheme of their own. Plain functions.

Called by pipeline.loading and pipeline.status_file, which must agree on it.
"""

import re
from pathlib import Path

# Two letters at least: a single one is a drive. `hdfs:/x` is one as `hdfs://host/x` is.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_FILE = "file:"


def resolve_path(path: str, folder: Path) -> str:
    """Meant from the folder, unless it has a scheme: those are nobody's to change."""
    if path.startswith(_FILE + "/") and not path.startswith(_FILE + "//"):
        # Spark takes both ways of writing it; those who write tables only the longer one.
        return _FILE + "//" + path.removeprefix(_FILE)
    return path if _SCHEME.match(path) else str((folder / path).resolve())


def local_folder(path: str) -> Path | None:
    """None where it is not on a local disk."""
    if path.startswith(_FILE):
        return Path("/" + path.removeprefix(_FILE).lstrip("/"))
    return None if _SCHEME.match(path) else Path(path)
