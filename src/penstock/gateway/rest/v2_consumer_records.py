"""REST v2, consuming: the records of a consumer instance, and the offsets it commits.

Called by gateway.rest; what an instance reads is v2_consumers' affair.
"""

import logging
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import KafkaFailed
from penstock.gateway.rest.instances import Instance, Instances
from penstock.gateway.rest.payloads import DECODERS, BadPayload
from penstock.gateway.rest.reading import query_number
from penstock.gateway.rest.schemas import SchemaCodecs
from penstock.gateway.rest.v2_consumer_requests import (
    TIMEOUT_MS_MAX,
    check_places,
    offsets_of,
    places_of,
    read_body,
    whom,
)
from penstock.gateway.rest.v2_media import (
    CONVERSION_FAILED,
    ILLEGAL_STATE,
    answer_v2,
    choose_format,
    choose_media,
    in_v2,
    problem,
)

log = logging.getLogger(__name__)

RECORDS_MAX = 1000
BYTES_MAX = 64 * 1024 * 1024
BYTES_DEFAULT = 1024 * 1024


class V2ConsumerRecords:
    def __init__(self, services: Services, codecs: SchemaCodecs, instances: Instances) -> None:
        self._kafka = services.kafka
        self._codecs = codecs
        self._instances = instances
        self._consumed = services.measures.consumed.child("rest-v2")

    async def read(self, request: Request) -> Response:
        # -1 stands for the default, as nothing does.
        bytes_max = query_number(request, "max_bytes", -1, BYTES_MAX)
        timeout_ms = query_number(request, "timeout", -1, TIMEOUT_MS_MAX)
        async with self._instances.use(*whom(request)) as instance:
            media = choose_format(request, instance.format)
            if not instance.subscription and not instance.is_assigned:
                raise problem(409, ILLEGAL_STATE, "The consumer reads nothing yet: subscribe it, or assign partitions.")
            timeout_s = instance.request_timeout_s if timeout_ms in (None, -1) else timeout_ms / 1000
            limit = BYTES_DEFAULT if bytes_max in (None, -1) else bytes_max
            messages = await in_v2(instance.consumer.poll(RECORDS_MAX, timeout_s, limit))
            told = await self._tell_all(instance, messages)
            if instance.is_auto_commit and told:
                await _store(instance)
        self._consumed.value += len(told)
        return answer_v2(told, media)

    async def commit(self, request: Request) -> Response:
        media = choose_media(request)
        body = await read_body(request, None)
        # The offset of the last record that was read, as Confluent has it; Kafka keeps that of the next.
        wanted = None if not body else {one: offset + 1 for one, offset in offsets_of(body).items()}
        async with self._instances.use(*whom(request)) as instance:
            await in_v2(instance.consumer.commit(wanted))
        return answer_v2([], media)

    async def committed(self, request: Request) -> Response:
        media = choose_media(request)
        places = places_of(await read_body(request))
        async with self._instances.use(*whom(request)) as instance:
            await check_places(places, self._kafka)
            found = await in_v2(instance.consumer.committed(places, self._kafka.ask_timeout_s))
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


async def _store(instance: Instance) -> None:
    """What cannot be stored (another member has the partition) is not committed; the records are told all the same."""
    try:
        await instance.consumer.store_delivered()
    except KafkaFailed as failure:
        log.info("consumer %s of group %s: offsets were not stored: %s", instance.name, instance.group, failure)
