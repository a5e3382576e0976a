"""A schema, the versions of subjects that hold it, and how it is found again.

Used by state.py, which alone changes what lies here, and by everything that reads the state.
"""

import hashlib
import struct

import orjson

from penstock.schemas.schema import Reference
from penstock.schemas.stored.records import SchemaRecord


class Content:
    """A schema apart from the subjects that hold it. Never changes."""

    __slots__ = ("canonical", "digest", "id", "kind", "metadata", "references", "rule_set", "serial", "text")

    _made = 0

    def __init__(self, record: SchemaRecord) -> None:
        self.id = record.id
        self.kind = record.kind
        self.text = record.text
        self.references = record.references
        self.metadata = record.metadata
        self.rule_set = record.rule_set
        self.digest = digest_of(record.text, record.references, record.metadata, record.rule_set)
        # Digests of what the parser makes of it, as it is and normalized; filled in when they are first needed.
        self.canonical: tuple[bytes, bytes] | None = None
        Content._made += 1
        self.serial = Content._made

    def is_same(self, kind: str, text: str, references: tuple[Reference, ...]) -> bool:
        return self.kind == kind and self.references == references and self.text == text

    @property
    def guid(self) -> str:
        text = self.digest.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Version:
    """A version of a subject."""

    __slots__ = ("content", "deleted", "subject", "version")

    def __init__(self, subject: str, version: int, content: Content, deleted: bool) -> None:
        self.subject, self.version, self.content, self.deleted = subject, version, content, deleted

    def record(self, *, deleted: bool) -> SchemaRecord:
        content = self.content
        return SchemaRecord(
            self.subject,
            self.version,
            content.id,
            content.kind,
            content.text,
            content.references,
            content.metadata,
            content.rule_set,
            deleted,
        )


class Holders:
    """One id of a context: its schema, and the versions that hold it."""

    __slots__ = ("content", "versions")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.versions: dict[tuple[str, int], Version] = {}


class Context:
    __slots__ = ("by_digest", "ids", "max_id")

    def __init__(self) -> None:
        self.ids: dict[int, Holders] = {}
        self.by_digest: dict[bytes, Holders] = {}
        self.max_id = 0


class Subject:
    __slots__ = ("latest", "versions")

    def __init__(self) -> None:
        self.versions: dict[int, Version] = {}
        self.latest: Version | None = None
        """The newest version that is not deleted."""

    def ordered(self) -> list[Version]:
        return [self.versions[version] for version in sorted(self.versions)]

    def find_latest(self) -> None:
        live = [version for version, held in self.versions.items() if not held.deleted]
        self.latest = self.versions[max(live)] if live else None


def digest_of(text: str, references: tuple[Reference, ...], metadata: str | None, rule_set: str | None) -> bytes:
    """Names a schema in an index and, as its guid, to clients; whoever finds one compares the texts too."""
    digest = hashlib.md5(text.encode(errors="surrogatepass"), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode(errors="surrogatepass"))
        digest.update(reference.subject.encode(errors="surrogatepass"))
        digest.update(struct.pack(">i", reference.version))
    for contract in (metadata, rule_set):
        if contract is not None:
            digest.update(orjson.dumps(orjson.loads(contract), option=orjson.OPT_SORT_KEYS))
    return digest.digest()


def place_of(content: Content) -> bytes:
    return content.kind.encode() + content.digest
