"""Messages of every API but Produce and Fetch on the hot walk: bytes to kio's dataclasses, mappings to bytes.

Called by server.dispatch, client.connection and tests. The one importer of kio, and it imports a version of an
API when the first message of it comes: all of them together would cost a second and 20 MB at start-up.
Invariants:
- Whatever bytes come in, decoding gives a message or raises MalformedFrame.
- Encoding takes error codes as ints, durations and timestamps as milliseconds; see wire.writer for the rest.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Literal

from penstock.errors import MalformedFrame
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.schema import EntityType, FieldSpec, field_specs
from penstock.wire.skim import Skip, compile_skip, skim
from penstock.wire.writer import Body, Write, compile_writer

Kind = Literal["request", "response"]
_Check = Callable[[Any], None]

# Below this a body can't hold enough elements to matter, and the walk that counts them is saved.
_SKIM_ABOVE_BYTES = 64 * 1024

# A response comes from a broker we chose to ask; its size is bounded by what we asked for.
_RESPONSE_ELEMENTS_MAX = 2**31


class _Codec:
    """What is compiled for one version of one message; the parts that are seldom needed, when they are."""

    __slots__ = ("_skip", "_writer", "check", "entity", "read", "vocabulary")

    def __init__(self, api_key: int, version: int, kind: Kind) -> None:
        self.vocabulary = _Vocabulary(api_key, kind)
        self.entity = load_entity(api_key, version, kind)
        self.read: Callable[[bytes, int], tuple[Any, int]] = _entity_reader(self.entity)
        self.check = _compile_null_check(self.entity)
        self._skip: Skip | None = None
        self._writer: Write | None = None

    def decode(self, body: bytes, elements_max: int) -> Any:
        try:
            if len(body) > _SKIM_ABOVE_BYTES:
                body = self._skim(body, elements_max)
            try:
                message, size = self.read(body, 0)
            except KeyError:  # a tagged field kio doesn't know
                body = self._skim(body, elements_max)
                message, size = self.read(body, 0)
        except MalformedFrame:
            raise
        except Exception as failure:
            raise MalformedFrame(f"{self.entity.__name__}: {failure}") from failure
        if size != len(body):
            raise MalformedFrame(f"{self.entity.__name__}: {len(body) - size} bytes too many")
        if self.check is not None:
            self.check(message)
        return message

    def encode(self, body: Body) -> bytes:
        if self._writer is None:
            self._writer = compile_writer(self.entity, self.vocabulary.require)
        out = bytearray()
        self._writer(out, body)
        return bytes(out)

    def _skim(self, body: bytes, elements_max: int) -> bytes:
        if self._skip is None:
            self._skip = compile_skip(self.entity)
        return skim(self._skip, body, elements_max)


class _Vocabulary:
    """Which field names any version of a message knows, learnt from the newest version down and only when asked."""

    def __init__(self, api_key: int, kind: Kind) -> None:
        self._api_key = api_key
        self._kind: Kind = kind
        self._versions = iter(range(BY_KEY[api_key].high, BY_KEY[api_key].low - 1, -1))
        self._names: set[tuple[str, ...]] = set()

    def require(self, path: tuple[str, ...], names: Iterable[str]) -> None:
        missing = {(*path, name) for name in names}
        while not missing <= self._names:
            version = next(self._versions, None)
            assert version is not None, f"no version of {BY_KEY[self._api_key].name} {self._kind} has {missing}"
            self._learn(load_entity(self._api_key, version, self._kind), ())

    def _learn(self, entity: EntityType, path: tuple[str, ...]) -> None:
        for spec in field_specs(entity):
            self._names.add((*path, spec.name))
            if spec.entity is not None:
                self._learn(spec.entity, (*path, spec.name))


_codecs: dict[tuple[int, int, Kind], _Codec] = {}


def decode_request(api_key: int, version: int, body: bytes) -> Any:
    """kio's dataclass of this version. Arrays may be null only where Kafka's layout says so."""
    return _codec(api_key, version, "request").decode(body, BY_KEY[api_key].request_elements_max)


def decode_response(api_key: int, version: int, body: bytes) -> Any:
    return _codec(api_key, version, "response").decode(body, _RESPONSE_ELEMENTS_MAX)


def encode_request(api_key: int, version: int, body: Mapping[str, Any]) -> bytes:
    return _codec(api_key, version, "request").encode(body)


def encode_response(api_key: int, version: int, body: Mapping[str, Any]) -> bytes:
    return _codec(api_key, version, "response").encode(body)


def load_entity(api_key: int, version: int, kind: Kind) -> EntityType:
    """kio's class of a whole message."""
    api = BY_KEY[api_key]
    module = _import_kio(f"kio.schema.{ApiKey(api_key).package}.v{version}.{kind}")
    return getattr(module, f"{api.name}{kind.title()}")


def _codec(api_key: int, version: int, kind: Kind) -> _Codec:
    codec = _codecs.get((api_key, version, kind))
    if codec is None:
        codec = _codecs[api_key, version, kind] = _Codec(api_key, version, kind)
    return codec


def _entity_reader(entity: EntityType) -> Callable[[bytes, int], tuple[Any, int]]:
    return _import_kio("kio.serial").entity_reader(entity)


def _import_kio(name: str) -> Any:
    """kio imports hypothesis wherever it is installed, half a second for hooks we never call; it does without, too."""
    if name in sys.modules or "hypothesis" in sys.modules:
        return import_module(name)
    sys.modules["hypothesis"] = None  # pyright: ignore[reportArgumentType]: how Python marks a module as absent
    try:
        return import_module(name)
    finally:
        del sys.modules["hypothesis"]


def _compile_null_check(entity: EntityType) -> _Check | None:
    """kio lets null through in every array; Kafka's layouts allow it in few, and handlers rely on them."""
    specs = [spec for spec in field_specs(entity) if spec.is_array or spec.entity is not None]
    checks = [check for check in map(_compile_field_check, specs) if check is not None]
    if not checks:
        return None

    def check(message: Any) -> None:
        for check_field in checks:
            check_field(message)

    return check


def _compile_field_check(spec: FieldSpec) -> _Check | None:
    name, nullable, is_array = spec.name, spec.nullable, spec.is_array
    check_nested = _compile_null_check(spec.entity) if spec.entity is not None else None
    if check_nested is None and (nullable or not is_array):
        return None

    def check(message: Any) -> None:
        value = getattr(message, name)
        if value is None:
            if not nullable:
                raise MalformedFrame(f"null in {name}")
        elif check_nested is not None:
            for nested in value if is_array else (value,):
                check_nested(nested)

    return check
