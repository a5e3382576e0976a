"""CRC-32C, the checksum of record batches and of our own small files.

Called by records, log, cli and spark; the one importer of the package crc32c.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c


def _load_function() -> Any:
    """The package's compiled module without the package around it.

    That one asks importlib.metadata for its own version, which brings the standard library's parsers of mail, zip and
    csv files: a twentieth of a broker's start, and 2.5 MB for as long as it runs.
    """
    package = find_spec("crc32c")
    compiled = None if package is None else PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if compiled is None or compiled.loader is None:
        # A release that is laid out otherwise: slower to start, and as good.
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(compiled)
    compiled.loader.exec_module(module)
    return module.crc32c


if not TYPE_CHECKING:
    crc32c = _load_function()
