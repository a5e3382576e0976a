"""REST v2, consuming: consumer instances, made and closed, and which topics or partitions they read.

Called by gateway.rest; the instances themselves are rest.instances', their records v2_consumer_records'.
"""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import KafkaFailed
from penstock.gateway.rest.instances import Instance, Instances
from penstock.gateway.rest.names import base_url, plain_name
from penstock.gateway.rest.reading import fields
from penstock.gateway.rest.v2_consumer_requests import (
    CONFIG,
    INVALID_CONFIG,
    SUBSCRIPTION,
    TIMEOUT_MS_DEFAULT,
    TIMEOUT_MS_MAX,
    check_places,
    flag_of,
    number_of,
    offsets_of,
    pattern_of,
    places_of,
    read_body,
    settings_of,
    topics_of,
    whom,
)
from penstock.gateway.rest.v2_media import (
    BINARY,
    FORMATS,
    ILLEGAL_STATE,
    answer_v2,
    choose_media,
    in_v2,
    no_content,
    problem,
)
from penstock.model import TopicPartition

BEGINNING, END = -2, -1
POLL_GRACE_MS = 60_000


class V2Consumers:
    def __init__(self, services: Services, instances: Instances) -> None:
        self._services = services
        self._kafka = services.kafka
        self._instances = instances

    # Life

    async def create(self, request: Request) -> Response:
        media = choose_media(request)
        group = plain_name(request.path_params["group"], problem(422, 422, "This is no name of a group."))
        config = fields(await read_body(request, {}), "the consumer's configuration", CONFIG)
        name = config.get("name") or config.get("id") or self._instances.new_name()
        plain_name(name, problem(422, INVALID_CONFIG, "This is no name of a consumer instance."))
        written_as = (config.get("format") or BINARY).lower()
        if written_as not in FORMATS:
            raise problem(422, INVALID_CONFIG, f"{written_as[:40]!r} is no format: use one of {', '.join(FORMATS)}.")
        self._instances.check_free(group, name)
        timeout_ms = number_of(config, "consumer.request.timeout.ms", TIMEOUT_MS_DEFAULT, TIMEOUT_MS_MAX)
        is_auto_commit = flag_of(config, "auto.commit.enable", True)
        try:
            consumer = self._kafka.consumer(
                group, {"client.id": name, **self._patience(), **settings_of(config, is_auto_commit)}
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
        await self._instances.remove(*whom(request))
        return no_content()

    # What to read

    async def subscribe(self, request: Request) -> Response:
        body = fields(await read_body(request), "the subscription", SUBSCRIPTION)
        topics, pattern = body.get("topics"), body.get("topic_pattern")
        if topics is not None and pattern is None:
            wanted = topics_of(topics)
        elif pattern is not None and topics is None:
            wanted = (pattern_of(pattern),)
        else:
            raise problem(422, 422, "The subscription must have either topics or topic_pattern.")
        async with self._instances.use(*whom(request)) as instance:
            if instance.is_assigned:
                raise problem(
                    409, ILLEGAL_STATE, "The consumer reads assigned partitions: it cannot subscribe as well."
                )
            await in_v2(instance.consumer.subscribe(wanted))
            instance.subscription = wanted
        return no_content()

    async def subscription(self, request: Request) -> Response:
        media = choose_media(request)
        async with self._instances.use(*whom(request)) as instance:
            return answer_v2({"topics": list(instance.subscription)}, media)

    async def unsubscribe(self, request: Request) -> Response:
        async with self._instances.use(*whom(request)) as instance:
            await in_v2(instance.consumer.unsubscribe())
            instance.subscription, instance.is_assigned = (), False
        return no_content()

    async def assign(self, request: Request) -> Response:
        places = places_of(await read_body(request))
        async with self._instances.use(*whom(request)) as instance:
            if instance.subscription:
                raise problem(409, ILLEGAL_STATE, "The consumer is subscribed to topics: unsubscribe it first.")
            await check_places(places, self._kafka)
            await in_v2(instance.consumer.assign(dict.fromkeys(places)))
            instance.is_assigned = bool(places)
        return no_content()

    async def assignment(self, request: Request) -> Response:
        media = choose_media(request)
        async with self._instances.use(*whom(request)) as instance:
            held = await instance.consumer.assignment()
        return answer_v2({"partitions": [{"topic": one.topic, "partition": one.partition} for one in held]}, media)

    async def seek(self, request: Request) -> Response:
        return await self._seek(request, offsets_of(await read_body(request)))

    async def seek_to_beginning(self, request: Request) -> Response:
        return await self._seek(request, dict.fromkeys(places_of(await read_body(request)), BEGINNING))

    async def seek_to_end(self, request: Request) -> Response:
        return await self._seek(request, dict.fromkeys(places_of(await read_body(request)), END))

    async def _seek(self, request: Request, wanted: dict[TopicPartition, int]) -> Response:
        async with self._instances.use(*whom(request)) as instance:
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
                await in_v2(instance.consumer.assign(positions))
            else:
                await in_v2(instance.consumer.seek(wanted))
        return no_content()
