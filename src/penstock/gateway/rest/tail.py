"""Following a topic: from where, which partitions, for how long. What events and sockets have in common.

Called by rest.events and rest.socket, which send what it gives as rest.telling writes it.
Laws:
- Nothing is read ahead of the reader but what librdkafka's bounded queue holds: who is slow is waited for.
- `positions` say where the next record of each partition is, so that a stream can go on where another ended.
- With a group, the records are shared with its other members and committed once they were sent; without, nothing is
  committed and every reader gets all.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import HTTPConnection

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem
from penstock.gateway.kafka import AsyncConsumer
from penstock.gateway.rest.names import plain_name
from penstock.gateway.rest.reading import query_number
from penstock.gateway.rest.shapes import INT32_MAX, INT64_MAX
from penstock.gateway.rest.table import Parameter
from penstock.gateway.rest.telling import FORMATS
from penstock.gateway.rest.v3_paths import find_topic, not_found
from penstock.model import TopicPartition

EARLIEST, LATEST = -2, -1
FROMS = ("earliest", "latest", "offset", "timestamp")
BATCH_RECORDS = 200
BATCH_BYTES = 1024 * 1024
POLL_S = 1.0
COMMIT_S = 1.0
# How soon partitions that were added are read, too.
LOOK_FOR_PARTITIONS_S = 30.0
RESUME_MAX = 10_000

PARAMETERS = (
    Parameter("from", "query", {"type": "string", "enum": list(FROMS)}, "Where to begin; latest unless said."),
    Parameter("offset", "query", {"type": "integer", "minimum": 0}, "With from=offset."),
    Parameter("timestamp", "query", {"type": "integer", "minimum": 0}, "With from=timestamp: ms since 1970."),
    Parameter("partition", "query", {"type": "integer", "minimum": 0}, "Only this one."),
    Parameter("group", "query", {"type": "string"}, "Read as a member of this group, and commit."),
    Parameter("format", "query", {"type": "string", "enum": list(FORMATS)}, "How keys and values are told."),
    Parameter("limit", "query", {"type": "integer", "minimum": 1}, "End after so many records."),
)


@dataclass(slots=True)
class Tail:
    topic: str
    format: str
    group: str | None
    limit: int | None
    consumer: AsyncConsumer
    positions: dict[int, int]
    partitions: int
    is_whole: bool  # all partitions are read, those to come as well
    _looked_at: float = field(default=0.0)

    async def batches(self, services: Services) -> AsyncGenerator[list[Any]]:
        """Messages as they come; an empty list now and then, so that whoever waits can say that he lives."""
        loop = asyncio.get_running_loop()
        self._looked_at = committed_at = loop.time()
        left = self.limit
        while left is None or left > 0:
            wanted = BATCH_RECORDS if left is None else min(left, BATCH_RECORDS)
            messages = await self.consumer.poll(wanted, POLL_S, BATCH_BYTES)
            if left is not None:
                left -= len(messages)
            yield messages
            now = loop.time()
            # They are sent: the caller has come back for more.
            if self.group is not None and now - committed_at >= COMMIT_S:
                await self.consumer.commit()
                committed_at = now
            if self.is_whole and now - self._looked_at >= LOOK_FOR_PARTITIONS_S:
                self._looked_at = now
                await self._look_for_partitions(services)
        if self.group is not None:
            await self.consumer.commit()

    def note(self, message: Any) -> None:
        """It is on its way to the reader."""
        self.positions[message.partition()] = message.offset() + 1

    async def _look_for_partitions(self, services: Services) -> None:
        facts = await services.kafka.topic(self.topic)
        if facts is None or facts.partitions <= self.partitions:
            return
        from confluent_kafka import TopicPartition as Place

        new = [Place(self.topic, number, EARLIEST) for number in range(self.partitions, facts.partitions)]
        await self.consumer.run(lambda consumer: consumer.incremental_assign(new))
        self.partitions = facts.partitions


async def open_tail(connection: HTTPConnection, services: Services, resume: str | None) -> Tail:
    """What the address asks for. `resume`: positions where an earlier stream of the same ended."""
    topic, partitions = await find_topic(connection, services)
    query = connection.query_params
    written_as = query.get("format", "auto")
    if written_as not in FORMATS:
        raise _wrong(f"format must be one of {', '.join(FORMATS)}")
    begin = query.get("from", "latest")
    if begin not in FROMS:
        raise _wrong(f"from must be one of {', '.join(FROMS)}")
    limit = query_number(connection, "limit", 1, INT64_MAX)
    only = query_number(connection, "partition", 0, INT32_MAX)
    if only is not None and only >= partitions:
        raise not_found()
    group = query.get("group")
    if group is not None:
        return await _join(
            services, topic, written_as, limit, plain_name(group, _wrong("this is no group's name")), begin
        )
    wanted = range(partitions) if only is None else [only]
    positions = dict.fromkeys(wanted, EARLIEST if begin == "earliest" else LATEST)
    if begin == "offset":
        offset = query_number(connection, "offset", 0, INT64_MAX)
        if offset is None:
            raise _wrong("from=offset needs an offset")
        positions = dict.fromkeys(wanted, offset)
    consumer = services.kafka.consumer(None, {"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    try:
        if begin == "timestamp":
            moment = query_number(connection, "timestamp", 0, INT64_MAX)
            if moment is None:
                raise _wrong("from=timestamp needs a timestamp")
            positions = await _at_time(consumer, topic, list(wanted), moment, services.kafka.ask_timeout_s)
        elif begin == "latest":
            # Now, not when the first fetch happens to come: what is written from this moment on is told.
            places = [TopicPartition(topic, number) for number in wanted]
            ends = await consumer.ends(places, services.kafka.ask_timeout_s)
            positions = {place.partition: at for place, at in ends.items()}
        if resume:
            positions |= {number: at for number, at in parse_positions(resume).items() if number in positions}
        await consumer.assign({TopicPartition(topic, number): at for number, at in positions.items()})
    except BaseException:
        await consumer.close()
        raise
    known = {number: at for number, at in positions.items() if at >= 0}
    return Tail(topic, written_as, None, limit, consumer, known, partitions, only is None)


async def _join(services: Services, topic: str, written_as: str, limit: int | None, group: str, begin: str) -> Tail:
    if begin not in ("earliest", "latest"):
        raise _wrong("a group goes on where it has committed: from may only be earliest or latest")
    settings = {"auto.offset.reset": begin, "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = services.kafka.consumer(group, settings)
    try:
        await consumer.subscribe([topic])
    except BaseException:
        await consumer.close()
        raise
    return Tail(topic, written_as, group, limit, consumer, {}, 0, False)


async def _at_time(
    consumer: AsyncConsumer, topic: str, wanted: list[int], moment: int, timeout_s: float
) -> dict[int, int]:
    from confluent_kafka import TopicPartition as Place

    asked = [Place(topic, number, moment) for number in wanted]
    found = await consumer.run(lambda client: client.offsets_for_times(asked, timeout=timeout_s))
    # Where nothing is that new librdkafka gives the end itself.
    return {one.partition: one.offset if one.offset >= 0 else LATEST for one in found}


def format_positions(positions: dict[int, int]) -> str:
    return ",".join([f"{number}:{at}" for number, at in sorted(positions.items())])


def parse_positions(text: str) -> dict[int, int]:
    """What format_positions wrote; 400 for anything else."""
    found: dict[int, int] = {}
    for part in text.split(",", RESUME_MAX):
        number, colon, at = part.partition(":")
        if not colon or not (number.isascii() and number.isdigit() and at.isascii() and at.isdigit()):
            raise _wrong("the last event's id is none of this stream")
        if len(number) > 10 or len(at) > 19:
            raise _wrong("the last event's id is none of this stream")
        found[int(number)] = int(at)
    return found


def _wrong(what: str) -> HttpProblem:
    return HttpProblem(400, 400, f"The request cannot be served: {what}.")
