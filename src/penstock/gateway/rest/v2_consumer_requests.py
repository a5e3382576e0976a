"""REST v2, consuming: what a request to a consumer says: whom it means, its settings, topics, partitions, offsets.

Called by v2_consumers and v2_consumer_records.
Law: whatever a caller may list is bounded, and told so with v2's content type.
"""

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from penstock.gateway.kafka import Kafka
from penstock.gateway.limits import content_type, parse_json
from penstock.gateway.rest.names import plain_name, topic_name
from penstock.gateway.rest.reading import Known, fields, integer
from penstock.gateway.rest.shapes import INT32_MAX, INT64_MAX
from penstock.gateway.rest.v2_media import EVERY_BODY, instance_not_found, partition_not_found, problem, topic_not_found
from penstock.model import TopicPartition

INVALID_CONFIG = 42204
PARTITIONS_MAX = 10_000
TOPICS_MAX = 1000
PATTERN_MAX = 500
FETCH_BYTES_MAX = 10_000_000
TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX = 1000, 30_000
OFFSET_RESETS = ("earliest", "latest", "none")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

CONFIG: Known = {
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
SUBSCRIPTION: Known = {"topics": list, "topic_pattern": str}
_PLACE: Known = {"topic": str, "partition": int}
_OFFSET: Known = {**_PLACE, "offset": int, "metadata": str}


def whom(request: Request) -> tuple[str, str]:
    return (
        plain_name(request.path_params["group"], instance_not_found()),
        plain_name(request.path_params["instance"], instance_not_found()),
    )


async def read_body(request: Request, default: Any = ...) -> Any:
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


def settings_of(config: Mapping[str, Any], is_auto_commit: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "enable.auto.commit": is_auto_commit,
        "auto.offset.reset": config.get("auto.offset.reset") or "latest",
        "isolation.level": config.get("isolation.level") or "read_committed",
    }
    if settings["auto.offset.reset"] not in OFFSET_RESETS:
        raise problem(422, INVALID_CONFIG, "auto.offset.reset must be earliest, latest or none.")
    if settings["isolation.level"] not in ISOLATION_LEVELS:
        raise problem(422, INVALID_CONFIG, "isolation.level must be read_committed or read_uncommitted.")
    if settings["auto.offset.reset"] == "none":
        settings["auto.offset.reset"] = "error"
    if config.get("fetch.min.bytes") is not None:
        settings["fetch.min.bytes"] = max(1, number_of(config, "fetch.min.bytes", 1, FETCH_BYTES_MAX))
    if config.get("fetch.max.wait.ms") is not None:
        settings["fetch.wait.max.ms"] = number_of(config, "fetch.max.wait.ms", 250, TIMEOUT_MS_MAX)
    return settings


def number_of(config: Mapping[str, Any], name: str, default: int, maximum: int) -> int:
    given = config.get(name)
    if given is None:
        return default
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= maximum):
        raise problem(422, INVALID_CONFIG, f"{name} must be a number from 0 to {maximum}.")
    return int(text)


def flag_of(config: Mapping[str, Any], name: str, default: bool) -> bool:
    given = config.get(name)
    if given is None:
        return default
    if str(given).lower() not in ("true", "false"):
        raise problem(422, INVALID_CONFIG, f"{name} must be true or false.")
    return str(given).lower() == "true"


def topics_of(topics: list[Any]) -> tuple[str, ...]:
    if not 1 <= len(topics) <= TOPICS_MAX or not all(isinstance(one, str) for one in topics):
        raise problem(422, 422, f"topics must be 1 to {TOPICS_MAX} names.")
    return tuple(topic_name(one, problem(422, 422, f"{one[:60]!r} is no name of a topic.")) for one in topics)


def pattern_of(text: str) -> str:
    if not 1 <= len(text) <= PATTERN_MAX or not text.isprintable():
        raise problem(422, 422, f"topic_pattern must have 1 to {PATTERN_MAX} characters.")
    # librdkafka knows a pattern by its first character.
    return text if text.startswith("^") else f"^{text}"


def _rows(body: Any, name: str, known: Known) -> list[dict[str, Any]]:
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


def places_of(body: Any) -> list[TopicPartition]:
    return [_place(row) for row in _rows(body, "partitions", _PLACE)]


def offsets_of(body: Any) -> dict[TopicPartition, int]:
    rows = _rows(body, "offsets", _OFFSET)
    return {_place(row): integer(row.get("offset"), "offset", 0, INT64_MAX - 1) for row in rows}


async def check_places(places: list[TopicPartition], kafka: Kafka) -> None:
    """That all of them exist."""
    for topic in {one.topic for one in places}:
        facts = await kafka.topic(topic)
        if facts is None:
            raise topic_not_found()
        if any(one.partition >= facts.partitions for one in places if one.topic == topic):
            raise partition_not_found()
