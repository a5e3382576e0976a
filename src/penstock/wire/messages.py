"""Messages of every API but Produce and Fetch on the hot walk: bytes to kio's dataclasses, mappings to bytes.

Called by server.dispatch, client.connection and tests. The one importer of kio, and it imports a version of an
API when the first message of it comes: all of them together would cost a second and 10 MB at start-up.
Invariants:
- Whatever bytes come in, decoding gives a message or raises MalformedFrame.
- Encoding takes error codes as ints, durations and timestamps as milliseconds; see wire.writer for the rest.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from threading import get_ident
from typing import Any

from penstock.errors import MalformedFrame
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.names import Kind, varying_names
from penstock.wire.schema import EntityType, field_specs
from penstock.wire.skim import Skip, compile_skip, skim
from penstock.wire.writer import Body, Write, compile_writer


class _Codec:
    """What is compiled for one version of one message."""

    __slots__ = ("_api_key", "_kind", "_reader", "_writer", "entity")

    def __init__(self, api_key: int, version: int, kind: Kind) -> None:
        self.entity = load_entity(api_key, version, kind)
        self._api_key = api_key
        self._kind: Kind = kind
        # A broker reads requests and writes responses: half of each would be compiled in vain.
        self._reader: tuple[Skip, Callable[[bytes, int], tuple[Any, int]]] | None = None
        self._writer: Write | None = None

    def decode(self, body: bytes, elements_max: int) -> Any:
        reader = self._reader
        if reader is None:
            reader = self._reader = (compile_skip(self.entity), _import_kio("kio.serial").entity_reader(self.entity))
        skip, read = reader
        try:
            body = skim(skip, body, elements_max)
            message, size = read(body, 0)
        except MalformedFrame:
            raise
        except Exception as failure:  # kio's own errors, and those of the types it builds: OverflowError, KeyError…
            raise MalformedFrame(f"{self.entity.__name__}: {failure}") from failure
        assert size == len(body)
        return message

    def encode(self, body: Body) -> bytes:
        write = self._writer
        if write is None:
            write = self._writer = compile_writer(self.entity, self._require_known)
        out = bytearray()
        write(out, body)
        return bytes(out)

    def _require_known(self, path: tuple[str, ...], names: Iterable[str]) -> None:
        missing = {".".join((*path, name)) for name in names} - varying_names(self._api_key, self._kind)
        assert not missing, f"no version of {BY_KEY[self._api_key].name} {self._kind} has {missing}"


_codecs: dict[tuple[int, int, Kind], _Codec] = {}


def decode_request(api_key: int, version: int, body: bytes) -> Any:
    """kio's dataclass of this version. Arrays may be null only where Kafka's layout says so."""
    return _codec(api_key, version, "request").decode(body, BY_KEY[api_key].request_elements_max)


def decode_response(api_key: int, version: int, body: bytes) -> Any:
    # As many elements as the broker we asked cares to send; none takes less than a byte.
    return _codec(api_key, version, "response").decode(body, len(body))


def encode_request(api_key: int, version: int, body: Mapping[str, Any]) -> bytes:
    return _codec(api_key, version, "request").encode(body)


def encode_response(api_key: int, version: int, body: Mapping[str, Any]) -> bytes:
    return _codec(api_key, version, "response").encode(body)


@cache
def load_entity(api_key: int, version: int, kind: Kind) -> EntityType:
    """kio's class of a whole message."""
    api = BY_KEY[api_key]
    module = _import_kio(f"kio.schema.{ApiKey(api_key).package}.v{version}.{kind}")
    entity: EntityType = getattr(module, f"{api.name}{kind.title()}")
    # Here and nowhere else: kio compiles its readers and writers once, from what the class says at that moment.
    _let_times_be_absent(entity)
    return entity


def _codec(api_key: int, version: int, kind: Kind) -> _Codec:
    codec = _codecs.get((api_key, version, kind))
    if codec is None:
        codec = _codecs[api_key, version, kind] = _Codec(api_key, version, kind)
    return codec


def _let_times_be_absent(entity: EntityType) -> None:
    """Kafka sends -1 wherever there is no time; kio reads it as None only where the layout's text calls it optional."""
    for spec, field in zip(field_specs(entity), fields(entity), strict=True):
        if spec.entity is not None:
            _let_times_be_absent(spec.entity)
        elif spec.kind == "datetime_i64":
            declared: Any = field.type
            field.type = declared | None


def _import_kio(name: str) -> Any:
    """kio imports hypothesis wherever it is installed, half a second for hooks we never call; it does without, too."""
    if name in sys.modules or "hypothesis" in sys.modules:
        return import_module(name)
    hiding = _HidesHypothesis(get_ident())
    sys.meta_path.insert(0, hiding)
    try:
        return import_module(name)
    finally:
        sys.meta_path.remove(hiding)


class _HidesHypothesis:
    """From one thread only: another may be importing it for good, in a test with a broker beside it."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "hypothesis" and get_ident() == self._thread:
            raise ModuleNotFoundError("kio is to do without hypothesis", name=fullname)
