"""pyiceberg's writing of metadata and manifests, with a sync at the end of each file.

Named in the properties of the folder's own catalog (iceberg_catalog). SQLite syncs its file by itself: without this, a
power cut could leave a catalog that names metadata which never reached the disk, and so a table that nobody can open.
"""

from types import TracebackType
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.spark.tables.durability import file_system, local_folder, sync, sync_folders


class SyncedFileIO(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        if local_folder(location) is None:
            return super().new_output(location)
        scheme, host, path = self.parse_location(location, self.properties)
        # Its own kind of local file system makes the folders that a file needs.
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, host))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _SyncedStream(super().create(overwrite), file_system(self.location)[1])


class _SyncedStream:
    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path
        self._is_closed = False

    def write(self, content: bytes) -> int:
        return self._stream.write(content)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._stream.close()
        sync(self._path)
        sync_folders(self._path.rpartition("/")[0], ())

    def __enter__(self) -> "_SyncedStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
