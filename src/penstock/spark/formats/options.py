"""The options of decoding, each described once: what the user wrote, checked and made plain data.

Called by the source (its unknown-option check and documentation use FORMAT_OPTIONS) and through `formats`.
Laws: light to import; a FormatOptions can be pickled; secrets are never in its repr.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from penstock.spark.errors import BadOption

Format = Literal["bytes", "string", "json", "avro", "protobuf"]
BadRecordPolicy = Literal["fail", "deadletter", "null"]


class FormatOption(NamedTuple):
    name: str
    default: str
    doc: str


FORMAT_OPTIONS = (
    FormatOption("value.format", "bytes", "bytes, string, json, avro or protobuf: what values hold."),
    FormatOption(
        "value.schema", "", "json: Spark DDL or JSON Schema; avro: the schema's JSON. Wins over the registry's."
    ),
    FormatOption(
        "value.schema.file", "", "A file with that text; protobuf: a descriptor set (protoc --include_imports)."
    ),
    FormatOption("value.message", "", "protobuf: full name of the message; by default the first one of the schema."),
    FormatOption("key.format", "bytes", "As value.format, for keys."),
    FormatOption("key.schema", "", "As value.schema, for keys."),
    FormatOption("key.schema.file", "", "As value.schema.file, for keys."),
    FormatOption("key.message", "", "As value.message, for keys."),
    FormatOption("schema.registry.url", "", "Schema registry (Confluent's HTTP API); several separated by commas."),
    FormatOption("schema.registry.subject", "<topic>-value", "Subject of the value's schema."),
    FormatOption("schema.registry.key.subject", "<topic>-key", "Subject of the key's schema."),
    FormatOption("schema.registry.basic.auth.user.info", "", "user:password for the registry."),
    FormatOption(
        "schema.registry.ssl.ca.location", "", "PEM file of the authorities that sign the registry's certificate."
    ),
    FormatOption("schema.registry.timeout.ms", "10000", "Longest wait for one answer of the registry."),
    FormatOption("schema.registry.retries", "3", "Further tries when the registry is unreachable or overloaded."),
    FormatOption(
        "on.bad.record", "fail", "fail the query, send the record to deadletter.topic, or keep the row with null."
    ),
    FormatOption("deadletter.topic", "", "Where bad records go under on.bad.record=deadletter (at least once)."),
)
FORMAT_OPTION_NAMES = frozenset(option.name for option in FORMAT_OPTIONS)

_FORMATS = ("bytes", "string", "json", "avro", "protobuf")
_POLICIES = ("fail", "deadletter", "null")


@dataclass(frozen=True, slots=True)
class FoundSchema:
    """A schema as it is handed to tasks. For protobuf `text` is empty and `files` holds serialized file descriptors."""

    text: str = ""
    references: tuple[tuple[str, str], ...] = ()
    files: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PartOptions:
    part: Literal["key", "value"]
    format: Format = "bytes"
    schema: str | None = None
    schema_file: str | None = None
    message: str | None = None
    subject: str | None = None
    found: FoundSchema | None = None


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_s: float = 10.0
    retries: int = 3


@dataclass(frozen=True, slots=True)
class FormatOptions:
    value: PartOptions
    key: PartOptions
    registry: RegistryOptions | None = None
    on_bad_record: BadRecordPolicy = "fail"
    deadletter_topic: str | None = None
    has_headers: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def is_typed(self) -> bool:
        return self.value.format != "bytes" or self.key.format != "bytes"

    @property
    def needs_headers(self) -> bool:
        """Raw rows must carry headers: the user wants them, or a dead letter must keep them."""
        return self.has_headers or (self.is_typed and self.on_bad_record == "deadletter")


def format_options(options: Mapping[str, str]) -> FormatOptions:
    """From the whole option map of a read; what belongs to others is left alone, kafka.* kept for dead letters."""
    given = {name.lower(): value for name, value in options.items() if value.strip()}
    registry = _registry(given)
    topics = _topics(given)
    value, key = (_part(part, given, registry is not None, topics) for part in ("value", "key"))
    policy = given.get("on.bad.record", "fail").strip().lower()
    if policy not in _POLICIES:
        raise BadOption(f"on.bad.record is {policy!r}; it can be {', '.join(_POLICIES)}")
    deadletter = given.get("deadletter.topic")
    if (policy == "deadletter") != (deadletter is not None):
        raise BadOption("on.bad.record=deadletter and deadletter.topic belong together: give both or neither")
    if deadletter is not None:
        _check_is_no_loop(deadletter, topics, given)
    kafka = {name[len("kafka.") :]: text for name, text in given.items() if name.startswith("kafka.")}
    has_headers = given.get("includeheaders", "false").strip().lower() == "true"
    return FormatOptions(value, key, registry, policy, deadletter, has_headers, kafka)


def _part(part: str, given: Mapping[str, str], has_registry: bool, topics: tuple[str, ...]) -> PartOptions:
    name = f"{part}.format"
    kind = given.get(name, "bytes").strip().lower()
    if kind not in _FORMATS:
        raise BadOption(f"{name} is {kind!r}; it can be {', '.join(_FORMATS)}")
    schema, file, message = (given.get(f"{part}.{rest}") for rest in ("schema", "schema.file", "message"))
    for option, text in (("schema", schema), ("schema.file", file), ("message", message)):
        if text is not None and (kind in ("bytes", "string") or (option == "message" and kind != "protobuf")):
            raise BadOption(f"{part}.{option} has no meaning with {name}={kind}; leave it out or change the format")
    if kind == "protobuf" and schema is not None:
        raise BadOption(f"protobuf takes no {part}.schema: give {part}.schema.file (a descriptor set) or a registry")
    if schema is not None and file is not None:
        raise BadOption(f"give {part}.schema or {part}.schema.file, not both")
    subject = given.get("schema.registry.subject" if part == "value" else "schema.registry.key.subject")
    if kind not in ("bytes", "string") and schema is None and file is None:
        if not has_registry:
            raise BadOption(
                f"{name}={kind} needs a schema: give {part}.schema, {part}.schema.file or schema.registry.url"
            )
        if subject is None and len(topics) != 1:
            which = "schema.registry.subject" if part == "value" else "schema.registry.key.subject"
            raise BadOption(f"the subject of the {part}'s schema is unknown unless one topic is read: give {which}")
    if subject is None and len(topics) == 1:
        subject = f"{topics[0]}-{part}"
    return PartOptions(cast("Any", part), kind, schema, file, message, subject)


def _registry(given: Mapping[str, str]) -> RegistryOptions | None:
    text = given.get("schema.registry.url")
    if text is None:
        return None
    user_info = given.get("schema.registry.basic.auth.user.info")
    urls: list[str] = []
    for url in text.split(","):
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadOption("schema.registry.url must be http:// or https:// and a host")
        # A password in the URL would show up in every message that names the registry.
        login, at, host = parts.netloc.rpartition("@")
        if at and user_info is None:
            user_info = unquote(login)
        urls.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    if user_info is not None and ":" not in user_info:
        raise BadOption("schema.registry.basic.auth.user.info must be user:password")
    timeout_ms = _whole(given, "schema.registry.timeout.ms", 10_000, least=1)
    retries = _whole(given, "schema.registry.retries", 3, least=0)
    return RegistryOptions(
        tuple(urls), user_info, given.get("schema.registry.ssl.ca.location"), timeout_ms / 1000, retries
    )


def _whole(given: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = given.get(name, str(default)).strip()
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise BadOption(f"{name} is {text!r}; it must be a whole number of at least {least}")
    return int(text)


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that are named; none under a pattern. What is malformed is the source's to refuse."""
    if (subscribe := given.get("subscribe")) is not None:
        return tuple(topic.strip() for topic in subscribe.split(",") if topic.strip())
    try:
        assigned: object = json.loads(given.get("assign", "{}"))
    except ValueError:
        return ()
    return tuple(cast("dict[str, Any]", assigned)) if isinstance(assigned, dict) else ()


def _check_is_no_loop(deadletter: str, topics: tuple[str, ...], given: Mapping[str, str]) -> None:
    pattern = given.get("subscribepattern")
    try:
        is_read = deadletter in topics or (pattern is not None and re.fullmatch(pattern, deadletter) is not None)
    except re.error:
        return
    if is_read:
        raise BadOption(
            f"deadletter.topic {deadletter} is one of the topics read: bad records would come round for ever"
        )
