"""JSON Schema documents: which draft, what every `$ref` leads to, and where one stands inside them.

Called by json_schema.py; its SchemaNode is what json_checks.py and json_shapes.py walk on. Laws:
- Nothing is ever fetched: a reference leads into the document itself, to one of the given references or to a published
  metaschema, or the schema is refused.
- A node is an object of a document, so nodes are told apart by the identity of that object.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple, cast
from urllib.parse import urljoin

from penstock.schemas.json_text import dump
from penstock.schemas.schema import SchemaError

_REF_CHAIN_MAX = 100


class Draft(NamedTuple):
    """One of JSON Schema's drafts; `number` is 4, 6, 7, 2019 or 2020."""

    number: int
    uri: str

    @property
    def id_keyword(self) -> str:
        return "id" if self.number == 4 else "$id"

    @property
    def has_ref_siblings(self) -> bool:
        """Up to draft 7, whatever stands beside a $ref is ignored."""
        return self.number >= 2019


DRAFTS = tuple(
    Draft(number, uri)
    for number, uri in (
        (4, "http://json-schema.org/draft-04/schema"),
        (6, "http://json-schema.org/draft-06/schema"),
        (7, "http://json-schema.org/draft-07/schema"),
        (2019, "https://json-schema.org/draft/2019-09/schema"),
        (2020, "https://json-schema.org/draft/2020-12/schema"),
    )
)
DEFAULT_DRAFT = DRAFTS[2]
_BY_URI = {draft.uri.partition("://")[2]: draft for draft in DRAFTS}


def draft_of(document: Any) -> Draft:
    """By `$schema`; draft 7 where there is none or one that nobody published, as Confluent's registry has it."""
    uri = cast("dict[str, Any]", document).get("$schema") if isinstance(document, dict) else None
    if not isinstance(uri, str):
        return DEFAULT_DRAFT
    return _BY_URI.get(uri.rstrip("#").partition("://")[2], DEFAULT_DRAFT)


@dataclass(frozen=True, slots=True)
class Document:
    """A whole schema: its JSON, its draft and the documents it refers to, by the names it uses."""

    json: Any
    draft: Draft
    references: Mapping[str, "Document"]

    digest: bytes
    """Equal for documents that say the same, references included. To Python, 1 and true are equal; here they differ."""


def make_document(json: Any, draft: Draft, references: Mapping[str, Document]) -> Document:
    parts = [dump(json, is_sorted=True), *(f"{name} {used.digest.hex()}" for name, used in sorted(references.items()))]
    return Document(json, draft, references, sha256("\n".join(parts).encode()).digest())


@dataclass(frozen=True, slots=True, eq=False)
class SchemaNode:
    """One schema inside a document; `pointer` says where, for people."""

    schema: Mapping[str, Any] | bool
    draft: Draft
    pointer: str
    root: Any
    _resolver: Any

    @property
    def keywords(self) -> Mapping[str, Any]:
        """The schema's keywords; none where it is `true` or `false`."""
        return {} if isinstance(self.schema, bool) else self.schema

    @property
    def key(self) -> int:
        return id(self.schema)

    def child(self, *steps: str | int) -> "SchemaNode | None":
        """The schema under these keys; None where there is none."""
        value: Any = self.schema
        for step in steps:
            value = value[step]
        if not isinstance(value, (dict, bool)):
            return None
        pointer = "/".join((self.pointer, *(str(step).replace("~", "~0").replace("/", "~1") for step in steps)))
        return self._made(cast("Mapping[str, Any] | bool", value), pointer, self._resolver)

    def children(self, keyword: str) -> Iterator[tuple[str, "SchemaNode"]]:
        """The schemas of a keyword that holds an object of them (properties, definitions…)."""
        value = self.keywords.get(keyword)
        if isinstance(value, dict):
            for name in cast("dict[str, Any]", value):
                found = self.child(keyword, name)
                if found is not None:
                    yield name, found

    def listed(self, keyword: str) -> list["SchemaNode"]:
        """The schemas of a keyword that holds a list of them (allOf, prefixItems…)."""
        value = self.keywords.get(keyword)
        count = len(cast("list[Any]", value)) if isinstance(value, list) else 0
        found = (self.child(keyword, number) for number in range(count))
        return [node for node in found if node is not None]

    def referred(self) -> "SchemaNode | None":
        """What the schema's `$ref` (or its dynamic and recursive kin) leads to; None where it has none."""
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = self.keywords.get(keyword)
            if isinstance(reference, str):
                return self._follow(keyword, reference)
        return None

    def _follow(self, keyword: str, reference: str) -> "SchemaNode":
        if keyword == "$recursiveRef" and _marked(self.root, "$recursiveAnchor", True):
            return self._made(self.root, "", self._resolver)
        # The outermost schema with that anchor is meant; here it is the one that was registered.
        if keyword == "$dynamicRef" and _marked(self.root, "$dynamicAnchor", reference.rpartition("#")[2]):
            return self._made(self.root, "", self._resolver)
        try:
            found = self._resolver.lookup(reference)
        except Exception as error:
            # The library's own kinds of failure, and those of the URL parser below it, all mean the same to a user.
            raise SchemaError(
                f"{self.pointer or '/'}: {keyword} {reference[:200]!r} leads nowhere; "
                "give the schema it means as a reference of that name"
            ) from error
        if not isinstance(found.contents, (dict, bool)):
            raise SchemaError(f"{self.pointer or '/'}: {keyword} {reference[:200]!r} leads to what is no schema")
        return self._made(cast("Any", found.contents), reference, found.resolver)

    def target(self) -> "SchemaNode":
        """The schema itself, or where its `$ref`s lead if they are all it has."""
        node = self
        for _ in range(_REF_CHAIN_MAX):
            if node.draft.has_ref_siblings and len(node.keywords) > 1:
                return node
            found = node.referred()
            if found is None:
                return node
            node = found
        raise SchemaError(f"{self.pointer or '/'}: $ref goes in a circle, or over more than {_REF_CHAIN_MAX} steps")

    def _made(self, schema: Mapping[str, Any] | bool, pointer: str, resolver: Any) -> "SchemaNode":
        if isinstance(schema, dict) and isinstance(schema.get(self.draft.id_keyword), str):
            resolver = resolver.in_subresource(_specification(self.draft).create_resource(schema))
        return SchemaNode(schema, self.draft, pointer, self.root, resolver)


def open_document(document: Document) -> SchemaNode:
    """The root of a document, from which every `$ref` can be followed."""
    try:
        resource = _specification(document.draft).create_resource(document.json)
        base = resource.id() or ""
        found: dict[str, Document] = {}
        _collect(document, base, found)
        resources = [(uri, _specification(each.draft).create_resource(each.json)) for uri, each in found.items()]
        registry = _metaschemas().with_resources(resources).with_resource(base, resource).crawl()
        return SchemaNode(document.json, document.draft, "", document.json, registry.resolver(base))
    except SchemaError:
        raise
    except Exception as error:
        raise SchemaError(f"the schema's identifiers cannot be understood: {error}") from error


def metaschema_of(draft: Draft) -> Document:
    return make_document(_metaschemas().contents(draft.uri), draft, {})


def _collect(document: Document, base: str, found: dict[str, Document]) -> None:
    """The documents a document refers to, and those they refer to, by every address they may be called by."""
    waiting: list[tuple[Document, str]] = [(document, base)]
    while waiting:
        user, user_base = waiting.pop()
        for name, used in user.references.items():
            uri = urljoin(user_base, name)
            keywords = cast("dict[str, Any]", used.json) if isinstance(used.json, dict) else {}
            own = keywords.get(used.draft.id_keyword)
            own_uri = urljoin(uri, own) if isinstance(own, str) else uri
            for address in {uri.rstrip("#"), own_uri.rstrip("#")} - {""}:
                other = found.get(address)
                if other is None:
                    found[address] = used
                    waiting.append((used, own_uri))
                elif other.digest != used.digest:
                    raise SchemaError(f"two references of the name {name!r} differ; use one version of it everywhere")


def _marked(root: Any, keyword: str, value: object) -> bool:
    return isinstance(root, dict) and cast("dict[str, Any]", root).get(keyword) == value


@cache
def _metaschemas() -> Any:
    import importlib

    return cast("Any", importlib.import_module("jsonschema_specifications")).REGISTRY


@cache
def _specification(draft: Draft) -> Any:
    from referencing import Specification
    from referencing.jsonschema import specification_with

    known: Any = specification_with(draft.uri if draft.number >= 2019 else f"{draft.uri}#")

    def subresources_of(contents: Any) -> Iterator[Any]:
        """The schemas directly inside one; the library trips over `dependencies` that hold both names and schemas."""
        if isinstance(contents, dict):
            dependencies: Any = cast("dict[str, Any]", contents).get("dependencies", {})
            for each in (*known.subresources_of(contents), *cast("dict[str, Any]", dependencies).values()):
                if isinstance(each, dict):
                    yield each

    def anchors_in(_: Any, contents: Any) -> Any:
        return known.anchors_in(contents)

    made: Any = Specification
    return made(
        name=known.name,
        id_of=known.id_of,
        subresources_of=subresources_of,
        maybe_in_subresource=known.maybe_in_subresource,
        anchors_in=anchors_in,
    )
