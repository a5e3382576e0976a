"""REST v2, consuming: instances of consumers in a group, what they read, their records and offsets.

Called by gateway.rest; the instances themselves are rest.instances'.
"""

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import KafkaFailed
from penstock.gateway.limits import content_type, parse_json
from penstock.gateway.rest.instances import ILLEGAL_STATE, Instance, Instances
from penstock.gateway.rest.names import base_url, plain_name, topic_name
from penstock.gateway.rest.payloads import DECODERS, BadPayload
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.table import INT32_MAX, INT64_MAX, fields, integer, query_int
from penstock.gateway.rest.v2_media import (
    BINARY,
    EVERY_BODY,
    FORMATS,
    answer_v2,
    choose_format,
    choose_media,
    instance_not_found,
    no_content,
    partition_not_found,
    problem,
    topic_not_found,
)
from penstock.model import TopicPartition

log = logging.getLogger(__name__)

INVALID_CONFIG = 42204
CONVERSION_FAILED = 42203
PARTITIONS_MAX = 10_000
TOPICS_MAX = 1000
PATTERN_MAX = 500
TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX = 1000, 30_000
BYTES_MAX = 64 * 1024 * 1024
BYTES_DEFAULT = 1024 * 1024
BEGINNING, END = -2, -1
POLL_GRACE_MS = 60_000

_CONFIG: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "name": str,
    "format": str,
    "auto.offset.reset": str,
    "auto.commit.enable": (str, bool),
    "fetch.min.bytes": (str, int),
    "fetch.max.wait.ms": (str, int),
    "consumer.request.timeout.ms": (str, int),
    "isolation.level": str,
}
_PLACE: dict[str, type | tuple[type, ...]] = {"topic": str, "partition": int}
_OFFSET: dict[str, type | tuple[type, ...]] = {**_PLACE, "offset": int, "metadata": str}


class V2Consumers:
    def __init__(self, services: Services, codecs: SchemaCodecs, instances: Instances) -> None:
        self._services = services
        self._kafka = services.kafka
        self._codecs = codecs
        self._instances = instances
        self._consumed = services.measures.consumed.child("rest-v2")

    # Life

    async def create(self, request: Request) -> Response:
        media = choose_media(request)
        group = plain_name(request.path_params["group"], problem(422, 422, "This is no name of a group."))
        config = fields(await _body(request, {}), "the consumer's configuration", _CONFIG)
        name = config.get("name") or config.get("id") or self._instances.new_name()
        plain_name(name, problem(422, INVALID_CONFIG, "This is no name of a consumer instance."))
        written_as = (config.get("format") or BINARY).lower()
        if written_as not in FORMATS:
            raise problem(422, INVALID_CONFIG, f"{written_as[:40]!r} is no format: use one of {', '.join(FORMATS)}.")
        self._instances.check_free(group, name)
        timeout_ms = _number(config, "consumer.request.timeout.ms", TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX)
        is_auto_commit = _flag(config, "auto.commit.enable", True)
        try:
            consumer = self._kafka.consumer(
                group, {"client.id": name, **self._patience(), **_settings(config, is_auto_commit)}
            )
        except KafkaFailed as failure:
            raise problem(422, INVALID_CONFIG, f"The configuration is refused: {failure.message}.") from None
        made = Instance(
            group, name, written_as, consumer, is_auto_commit, timeout_ms / 1000, self._services.clock.monotonic()
        )
        self._instances.add(made)
        where = f"/consumers/{quote(group, safe='')}/instances/{quote(name, safe='')}"
        base = base_url(request, self._services.settings)
        return answer_v2({"instance_id": name, "base_uri": base + where}, media)

    def _patience(self) -> dict[str, int]:
        """Nobody polls between two requests: the group is to wait as long as we keep an idle instance."""
        return {"max.poll.interval.ms": int(self._services.settings.consumer_idle_s * 1000) + POLL_GRACE_MS}

    async def delete(self, request: Request) -> Response:
        await self._instances.remove(*_whom(request))
        return no_content()

    # What to read

    async def subscribe(self, request: Request) -> Response:
        known: dict[str, type | tuple[type, ...]] = {"topics": list, "topic_pattern": str}
        body = fields(await _body(request), "the subscription", known)
        topics = body.get("topics")
        pattern = body.get("topic_pattern")
        if topics is not None and pattern is None:
            wanted = _names(topics)
        elif pattern is None or topics is not None:
            raise problem(422, 422, "The subscription must have either topics or topic_pattern.")
        else:
            if len(pattern) > PATTERN_MAX or not pattern.isprintable() or not pattern:
                raise problem(422, 422, f"topic_pattern must have 1 to {PATTERN_MAX} characters.")
            # librdkafka knows a pattern by its first character.
            wanted = (pattern if pattern.startswith("^") else f"^{pattern}",)
        async with self._instances.use(*_whom(request)) as instance:
            if instance.is_assigned:
                raise problem(
                    409, ILLEGAL_STATE, "The consumer reads assigned partitions: it cannot subscribe as well."
                )
            await _do(instance.consumer.subscribe(wanted))
            instance.subscription = wanted
        return no_content()

    async def subscription(self, request: Request) -> Response:
        media = choose_media(request)
        async with self._instances.use(*_whom(request)) as instance:
            return answer_v2({"topics": list(instance.subscription)}, media)

    async def unsubscribe(self, request: Request) -> Response:
        async with self._instances.use(*_whom(request)) as instance:
            await _do(instance.consumer.unsubscribe())
            instance.subscription, instance.is_assigned = (), False
        return no_content()

    async def assign(self, request: Request) -> Response:
        places = _places(await _body(request))
        async with self._instances.use(*_whom(request)) as instance:
            if instance.subscription:
                raise problem(409, ILLEGAL_STATE, "The consumer is subscribed to topics: unsubscribe it first.")
            await self._check(places)
            await _do(instance.consumer.assign(dict.fromkeys(places)))
            instance.is_assigned = bool(places)
        return no_content()

    async def assignment(self, request: Request) -> Response:
        media = choose_media(request)
        async with self._instances.use(*_whom(request)) as instance:
            held = await instance.consumer.assignment()
        return answer_v2({"partitions": [{"topic": one.topic, "partition": one.partition} for one in held]}, media)

    async def seek(self, request: Request) -> Response:
        wanted = _offsets(await _body(request))
        return await self._seek(request, wanted)

    async def seek_to_beginning(self, request: Request) -> Response:
        return await self._seek(request, dict.fromkeys(_places(await _body(request)), BEGINNING))

    async def seek_to_end(self, request: Request) -> Response:
        return await self._seek(request, dict.fromkeys(_places(await _body(request)), END))

    async def _seek(self, request: Request, wanted: dict[TopicPartition, int]) -> Response:
        async with self._instances.use(*_whom(request)) as instance:
            held = await instance.consumer.assignment()
            for one in wanted:
                if one not in held:
                    raise problem(
                        409, ILLEGAL_STATE, f"The consumer does not read {one}: assign it first, or read once."
                    )
            at_end = [one for one, offset in wanted.items() if offset == END]
            if at_end:
                wanted |= await instance.consumer.ends(at_end, self._kafka.ask_timeout_s)
            if instance.is_assigned:
                # A seek needs the partition's fetcher to run; assigning anew works from the first moment.
                positions = {one: wanted.get(one, instance.consumer.delivered.get(one)) for one in held}
                await _do(instance.consumer.assign(positions))
            else:
                await _do(instance.consumer.seek(wanted))
        return no_content()

    # Records and offsets

    async def records(self, request: Request) -> Response:
        bytes_max = query_int(request, "max_bytes", -1, -1, BYTES_MAX)
        timeout_ms = query_int(request, "timeout", -1, -1, TIMEOUT_MS_MAX)
        async with self._instances.use(*_whom(request)) as instance:
            media = choose_format(request, instance.format)
            if not instance.subscription and not instance.is_assigned:
                raise problem(409, ILLEGAL_STATE, "The consumer reads nothing yet: subscribe it, or assign partitions.")
            timeout_s = instance.request_timeout_s if timeout_ms < 0 else timeout_ms / 1000
            limit = BYTES_DEFAULT if bytes_max < 0 else bytes_max
            try:
                messages = await instance.consumer.poll(1000, timeout_s, limit)
            except KafkaFailed as failure:
                raise _as_v2(failure) from None
            told = await self._tell_all(instance, messages)
            if instance.is_auto_commit and told:
                await _store(instance)
        self._consumed.value += len(told)
        return answer_v2(told, media)

    async def commit(self, request: Request) -> Response:
        media = choose_media(request)
        body = await _body(request, None)
        # The offset of the last record that was read, as Confluent has it; Kafka keeps that of the next.
        wanted = None if not body else {one: offset + 1 for one, offset in _offsets(body).items()}
        async with self._instances.use(*_whom(request)) as instance:
            try:
                await instance.consumer.commit(wanted)
            except KafkaFailed as failure:
                raise _as_v2(failure) from None
        return answer_v2([], media)

    async def committed(self, request: Request) -> Response:
        media = choose_media(request)
        places = _places(await _body(request))
        async with self._instances.use(*_whom(request)) as instance:
            await self._check(places)
            try:
                found = await instance.consumer.committed(places, self._kafka.ask_timeout_s)
            except KafkaFailed as failure:
                raise _as_v2(failure) from None
        told = [
            {"topic": one.topic, "partition": one.partition, "offset": offset, "metadata": ""}
            for one, offset in found.items()
        ]
        return answer_v2({"offsets": told}, media)

    async def _tell_all(self, instance: Instance, messages: list[Any]) -> list[dict[str, Any]]:
        """Up to the first that does not decode. If that is the first of all, it is told and passed over."""
        told: list[dict[str, Any]] = []
        for message in messages:
            try:
                told.append(await self._tell(instance, message))
            except BadPayload as fault:
                if told:
                    instance.consumer.put_back(messages[len(told) :])
                    break
                instance.consumer.put_back(messages[1:])
                where = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
                raise problem(422, CONVERSION_FAILED, f"{where} is passed over: {fault}.") from None
        return told

    async def _tell(self, instance: Instance, message: Any) -> dict[str, Any]:
        plain = DECODERS.get(instance.format)
        key, value = message.key(), message.value()
        if plain is not None:
            key, value = plain(key), plain(value)
        else:
            # Keys are often plain where values have schemas.
            key, value = await self._key(key), await self._codecs.decode(value)
        return {
            "topic": message.topic(),
            "key": key,
            "value": value,
            "partition": message.partition(),
            "offset": message.offset(),
        }

    async def _key(self, key: bytes | None) -> Any:
        try:
            return await self._codecs.decode(key)
        except BadPayload:
            return DECODERS["string"](key)

    async def _check(self, places: list[TopicPartition]) -> None:
        for topic in {one.topic for one in places}:
            facts = await self._kafka.topic(topic)
            if facts is None:
                raise topic_not_found()
            if any(one.partition >= facts.partitions for one in places if one.topic == topic):
                raise partition_not_found()


async def _store(instance: Instance) -> None:
    """What cannot be stored (another member has the partition) is not committed; the records are told all the same."""
    try:
        await instance.consumer.store_delivered()
    except KafkaFailed as failure:
        log.info("consumer %s of group %s: offsets were not stored: %s", instance.name, instance.group, failure)


async def _do(work: Any) -> None:
    try:
        await work
    except KafkaFailed as failure:
        raise _as_v2(failure) from None


def _as_v2(failure: KafkaFailed) -> Exception:
    told = failure.problem()
    if told.status == 404:
        return topic_not_found()
    return problem(told.status, ILLEGAL_STATE if told.status == 409 else told.code, told.message)


async def _body(request: Request, default: Any = ...) -> Any:
    """The request's JSON; `default` where an empty body is all right."""
    raw = await request.body()
    if not raw and default is not ...:
        return default
    kind = content_type(request)
    if kind not in EVERY_BODY:
        raise problem(
            415, 415, f"The content type {kind[:100]!r} is not read here: send application/vnd.kafka.v2+json."
        )
    return parse_json(raw)


def _whom(request: Request) -> tuple[str, str]:
    return (
        plain_name(request.path_params["group"], instance_not_found()),
        plain_name(request.path_params["instance"], instance_not_found()),
    )


def _settings(config: Mapping[str, Any], is_auto_commit: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "enable.auto.commit": is_auto_commit,
        "auto.offset.reset": config.get("auto.offset.reset") or "latest",
        "isolation.level": config.get("isolation.level") or "read_committed",
    }
    if settings["auto.offset.reset"] not in ("earliest", "latest", "none"):
        raise problem(422, INVALID_CONFIG, "auto.offset.reset must be earliest, latest or none.")
    if settings["isolation.level"] not in ("read_committed", "read_uncommitted"):
        raise problem(422, INVALID_CONFIG, "isolation.level must be read_committed or read_uncommitted.")
    if settings["auto.offset.reset"] == "none":
        settings["auto.offset.reset"] = "error"
    if config.get("fetch.min.bytes") is not None:
        settings["fetch.min.bytes"] = max(1, _number(config, "fetch.min.bytes", 1, 10_000_000))
    if config.get("fetch.max.wait.ms") is not None:
        settings["fetch.wait.max.ms"] = _number(config, "fetch.max.wait.ms", 250, TIMEOUT_MS_MAX)
    return settings


def _number(config: Mapping[str, Any], name: str, default: int, maximum: int) -> int:
    given = config.get(name)
    if given is None:
        return default
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= maximum):
        raise problem(422, INVALID_CONFIG, f"{name} must be a number from 0 to {maximum}.")
    return int(text)


def _flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    given = config.get(name)
    if given is None:
        return default
    if str(given).lower() not in ("true", "false"):
        raise problem(422, INVALID_CONFIG, f"{name} must be true or false.")
    return str(given).lower() == "true"


def _names(topics: list[Any]) -> tuple[str, ...]:
    if not 1 <= len(topics) <= TOPICS_MAX or not all(isinstance(one, str) for one in topics):
        raise problem(422, 422, f"topics must be 1 to {TOPICS_MAX} names.")
    return tuple(topic_name(one, problem(422, 422, f"{one[:60]!r} is no name of a topic.")) for one in topics)


def _rows(body: Any, name: str, known: Mapping[str, type | tuple[type, ...]]) -> list[dict[str, Any]]:
    listed = fields(body, "the request", {name: list}).get(name)
    if listed is None or len(listed) > PARTITIONS_MAX:
        raise problem(422, 422, f"{name} must be a list of at most {PARTITIONS_MAX}.")
    return [fields(one, f"an entry of {name}", known) for one in listed]


def _place(row: Mapping[str, Any]) -> TopicPartition:
    topic, partition = row.get("topic"), row.get("partition")
    if topic is None or partition is None:
        raise problem(422, 422, "Every entry needs a topic and a partition.")
    name = topic_name(topic, problem(422, 422, f"{topic[:60]!r} is no name of a topic."))
    return TopicPartition(name, integer(partition, "partition", 0, INT32_MAX))


def _places(body: Any) -> list[TopicPartition]:
    return [_place(row) for row in _rows(body, "partitions", _PLACE)]


def _offsets(body: Any) -> dict[TopicPartition, int]:
    rows = _rows(body, "offsets", _OFFSET)
    return {_place(row): integer(row.get("offset"), "offset", 0, INT64_MAX - 1) for row in rows}
