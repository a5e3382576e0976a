"""A schema registry, read by Confluent's HTTP API.

Called by resolving.py (driver: the latest version of a subject) and by avro and protobuf decoders (tasks: a writer's
schema by its id). Laws:
- A schema under an id never changes, so it is asked for once per process.
- UnknownSchema is a fact about a record or a subject; every other RegistryFailed is about the registry: the task fails.
- No answer is read past ANSWER_BYTES_MAX nor waited for past the time-out; redirects are not followed, since they would
  carry the password elsewhere.
"""

import base64
import json
import random
import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from penstock.spark.errors import SparkFailure, Unreachable
from penstock.spark.formats.options import RegistryOptions

ANSWER_BYTES_MAX = 8 << 20
REFERENCES_MAX = 200
_UNKNOWN_IDS_MAX = 1000
_UNKNOWN_S = 30.0
_BACKOFF_S = 0.1
_BACKOFF_MAX_S = 2.0


class RegistryFailed(SparkFailure):
    """The registry cannot be reached or does not answer as one."""


class RegistryUnreachable(RegistryFailed, Unreachable):
    """It does not answer, or answers that it cannot now."""


class UnknownSchema(RegistryFailed):
    """No such subject or id."""


class RegisteredSchema(NamedTuple):
    kind: str
    text: str
    references: tuple[tuple[str, str], ...]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Registry:
    def __init__(self, options: RegistryOptions) -> None:
        self._options = options
        self._by_id: dict[tuple[int, bool], RegisteredSchema] = {}
        self._unknown: dict[int, float] = {}
        try:
            context = ssl.create_default_context(cafile=options.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise RegistryFailed(f"schema.registry.ssl.ca.location cannot be read: {error}") from error
        self._opener = urllib.request.build_opener(_NoRedirects(), urllib.request.HTTPSHandler(context=context))

    def latest(self, subject: str, *, is_serialized: bool = False) -> RegisteredSchema:
        """The newest version of a subject; `is_serialized`: protobuf as a descriptor instead of its source."""
        return self._schema(f"/subjects/{quote(subject, safe='')}/versions/latest", f"subject {subject}", is_serialized)

    def by_id(self, schema_id: int, *, is_serialized: bool = False) -> RegisteredSchema:
        """The schema a record was written with."""
        found = self._by_id.get((schema_id, is_serialized))
        if found is None:
            if time.monotonic() < self._unknown.get(schema_id, 0.0):
                raise UnknownSchema(f"the schema registry knows no schema id {schema_id}")
            try:
                found = self._schema(f"/schemas/ids/{schema_id}", f"schema id {schema_id}", is_serialized)
            except UnknownSchema:
                # A topic full of nonsense must not become a request per record; but an id may be known a little later.
                if len(self._unknown) >= _UNKNOWN_IDS_MAX:
                    self._unknown.clear()
                self._unknown[schema_id] = time.monotonic() + _UNKNOWN_S
                raise
            self._by_id[schema_id, is_serialized] = found
        return found

    def _schema(self, path: str, what: str, is_serialized: bool) -> RegisteredSchema:
        answer = self._get(path, what, is_serialized)
        references: dict[str, str] = {}
        self._collect(answer, what, is_serialized, references, ())
        kind = answer.get("schemaType", "AVRO")
        return RegisteredSchema(str(kind), _text(answer, what), tuple(references.items()))

    def _collect(
        self, answer: dict[str, Any], what: str, is_serialized: bool, found: dict[str, str], path: tuple[str, ...]
    ) -> None:
        """References in the order in which each needs only those before it."""
        references: object = answer.get("references") or []
        if not isinstance(references, list):
            raise RegistryFailed(f"the schema registry's answer for {what} has references that are no list")
        for reference in cast("list[Any]", references):
            try:
                name, subject, version = str(reference["name"]), str(reference["subject"]), int(reference["version"])
            except (TypeError, KeyError, ValueError) as error:
                raise RegistryFailed(f"the schema registry's answer for {what} has a malformed reference") from error
            if name in found:
                continue
            if name in path or len(found) + len(path) >= REFERENCES_MAX:
                raise RegistryFailed(f"the references of {what} go round in a circle or are more than {REFERENCES_MAX}")
            named = f"{subject} version {version}"
            needed = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", named, is_serialized)
            self._collect(needed, named, is_serialized, found, (*path, name))
            found[name] = _text(needed, named)

    def _get(self, path: str, what: str, is_serialized: bool) -> dict[str, Any]:
        query = "?format=serialized" if is_serialized else ""
        for attempt in range(self._options.retries + 1):
            why = ""
            for url in self._options.urls:
                try:
                    return self._ask(url + path + query, what)
                except (OSError, HTTPException, _Busy) as error:
                    # The reason inside urllib's wrapper is what an operator can act on.
                    why = f"{url}: {getattr(error, 'reason', None) or error or type(error).__name__}"
            if attempt == self._options.retries:
                raise RegistryUnreachable(f"no schema registry answers for {what} ({why}); check schema.registry.url")
            time.sleep(min(_BACKOFF_MAX_S, _BACKOFF_S * 2**attempt) * random.uniform(0.5, 1))
        raise AssertionError("unreachable")

    def _ask(self, url: str, what: str) -> dict[str, Any]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if self._options.user_info is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(self._options.user_info.encode()).decode()
        deadline = time.monotonic() + self._options.timeout_s
        request = urllib.request.Request(url, headers=headers)
        try:
            with self._opener.open(request, timeout=self._options.timeout_s) as response:
                body = _read(response, deadline, what)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, what) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise RegistryFailed(
                    f"the schema registry's certificate is not trusted ({error.reason}); "
                    "set schema.registry.ssl.ca.location"
                ) from error
            raise
        try:
            answer: object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RegistryFailed(
                f"the schema registry's answer for {what} is no JSON; check schema.registry.url"
            ) from error
        if not isinstance(answer, dict):
            raise RegistryFailed(f"the schema registry's answer for {what} is no object; check schema.registry.url")
        return cast("dict[str, Any]", answer)


class _Busy(Exception):
    """An answer that another try may better."""


def _read(response: Any, deadline: float, what: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    # read1 gives what has arrived, so that a server that drips bytes cannot outlast the deadline.
    while piece := response.read1(1 << 16):
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise RegistryFailed(f"the schema registry's answer for {what} is longer than {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took too long")
        pieces.append(piece)
    return b"".join(pieces)


def _refusal(status: int, what: str) -> Exception:
    if status == 404:
        return UnknownSchema(f"the schema registry knows no {what}")
    if status in (401, 403):
        return RegistryFailed(
            f"the schema registry refuses access to {what}; check schema.registry.basic.auth.user.info"
        )
    if status in (408, 429) or status >= 500:
        return _Busy(f"HTTP status {status}")
    return RegistryFailed(f"the schema registry answers HTTP status {status} for {what}; check schema.registry.url")


def _text(answer: dict[str, Any], what: str) -> str:
    text: object = answer.get("schema")
    if not isinstance(text, str):
        raise RegistryFailed(f"the schema registry's answer for {what} holds no schema; check schema.registry.url")
    return text


_REGISTRIES: dict[RegistryOptions, Registry] = {}


def registry_of(options: RegistryOptions) -> Registry:
    """One per process and registry: Spark reuses its workers, and with them the schemas they know."""
    registry = _REGISTRIES.get(options)
    if registry is None:
        registry = _REGISTRIES[options] = Registry(options)
    return registry
