"""Writes docs/protocol.md from wire/apis.py; with --check, exits 1 when the file is stale."""

import sys

from generated_page import DOCS, write_or_check
from penstock.wire.apis import APIS, KIB, MIB, NEVER_FLEXIBLE, Api

TARGET = DOCS / "protocol.md"

HEAD = """\
# The Kafka protocol, as penstock serves it

Written by `scripts/protocol_table.py` from `src/penstock/wire/apis.py`; change that, not this.

A version outside the served range is answered UNSUPPORTED_VERSION. *Advertised* is what ApiVersions tells clients
where it differs. *Flexible from* is the first version with compact lengths and tagged fields. A request over its
limit, in bytes or in elements (array members at any depth), closes the connection.

| Key | API | Served | Advertised | Flexible from | Bytes at most | Elements at most |
|---:|---|---|---|---|---|---:|
"""


def protocol_page() -> str:
    return HEAD + "".join(f"{row(api)}\n" for api in APIS)


def row(api: Api) -> str:
    advertised = "" if api.advertised_low == api.low else f"{api.advertised_low}–{api.high}"
    flexible = "never" if api.flexible_from == NEVER_FLEXIBLE else str(api.flexible_from)
    cells = (
        str(api.key.value),
        api.name,
        f"{api.low}–{api.high}",
        advertised,
        flexible,
        size(api.request_bytes_max),
        f"{api.request_elements_max:,}",
    )
    return f"| {' | '.join(cells)} |"


def size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "`socket.request.max.bytes`"
    return f"{size_bytes // MIB} MiB" if size_bytes >= MIB else f"{size_bytes // KIB} KiB"


if __name__ == "__main__":
    sys.exit(write_or_check(TARGET, protocol_page()))
