"""Dead letters on their way to the leader of their topic, here or on another broker.

Called by validation.py before the rest of their batch is written. Laws:
- write() returns once they are as safe as acks=all makes anything. Otherwise NotNow: the batch they are of is not
  written either, and its producer sends it again.
- A topic that validates takes no dead letters: no record goes round in circles, whatever the settings say.
- Letters of one partition keep their order: they go to one partition, one after the other.
"""

import asyncio
from collections.abc import Sequence

from penstock.clock import Clock
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.topic_plan import NewTopic
from penstock.config import BrokerConfig
from penstock.errors import ErrorCode, PenstockError, TopicAlreadyExists, UnknownTopicOrPartition
from penstock.log.intake import admit
from penstock.model import INTERNAL_TOPICS, TopicPartition
from penstock.replication.partition import ACKS_ALL
from penstock.replication.replicas import Replicas
from penstock.validation.log_reading import Requests
from penstock.validation.rules import NotNow
from penstock.wire.apis import ApiKey

PRODUCE_VERSION = 12
WRITE_S_MAX = 10.0
"""For all letters of a batch."""
RETRY_S = 0.05
ROOM_BYTES = 64 << 10
"""What a dead-letter topic takes beyond the largest batch of the topic that it is made for: headers come on top."""

# Nothing was written there, and soon it may be: the topic is new, or its leader was just lost.
_SOON = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class DeadLetters:
    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        replicas: Replicas,
        controller: Controller,
        clock: Clock,
        ask: Requests,
    ) -> None:
        self._config = config
        self._image = image
        self._replicas = replicas
        self._controller = controller
        self._clock = clock
        self._ask = ask

    async def write(self, name: str, source: TopicPartition, letters: Sequence[bytearray]) -> None:
        """The letters of a batch of `source`. Raises NotNow."""
        try:
            async with asyncio.timeout(WRITE_S_MAX):
                for letter in letters:
                    await self._write(name, source, letter)
        except (PenstockError, TimeoutError) as error:
            why = f"it took longer than {WRITE_S_MAX:g} s" if isinstance(error, TimeoutError) else str(error)
            raise NotNow(f"nothing was written: bad records could not go to the topic {name}: {why}") from error

    async def _write(self, name: str, source: TopicPartition, letter: bytearray) -> None:
        while True:
            try:
                if name not in self._image.topics:
                    await self._make(name, source.topic)
                await self._deliver(name, source.partition, letter)
                return
            except PenstockError as error:
                if error.code not in _SOON:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _deliver(self, name: str, index: int, letter: bytearray) -> None:
        topic = self._image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r} yet")
        self._check(topic)
        at = TopicPartition(name, index % len(topic.partitions))
        leader = topic.partitions[at.partition].leader
        if leader == self._replicas.node_id:
            await self._append(at, letter)
        else:
            await self._send(leader, at, letter)

    def _check(self, topic: Topic) -> None:
        if topic.name in INTERNAL_TOPICS or topic.name == self._config.penstock_schema_topic:
            raise NotNow("brokers and the registry keep their own state there; name another dead-letter topic")
        if self._config.topic(topic.configs).validates:
            raise NotNow("it validates records itself; switch that off, or name another dead-letter topic")

    async def _append(self, at: TopicPartition, letter: bytearray) -> None:
        partition = self._replicas.find(at.topic, at.partition)
        topic = self._replicas.topics[at.topic]
        partition.check_in_sync()
        now_ms = self._clock.now_ms()
        batch, header = admit(memoryview(letter), topic.config, now_ms)
        appended = partition.append(batch, header, now_ms)
        topic.traffic.messages_in.value += header.record_count
        topic.traffic.batches_in.value += 1
        topic.traffic.bytes_in.value += len(batch)
        safe = partition.safe(appended, ACKS_ALL)
        if safe is not None:
            await asyncio.shield(safe)  # others may wait for the same

    async def _send(self, leader: int, at: TopicPartition, letter: bytearray) -> None:
        records = [{"index": at.partition, "records": bytes(letter)}]
        body = {
            "transactional_id": None,
            "acks": ACKS_ALL,
            "timeout": int(WRITE_S_MAX * 1000),
            "topic_data": [{"name": at.topic, "partition_data": records}],
        }
        reply = await self._ask(leader, ApiKey.PRODUCE, PRODUCE_VERSION, body)
        answer = reply.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            raise _Refused(ErrorCode(answer.error_code), leader, answer.error_message)

    async def _make(self, name: str, source: str) -> None:
        found = self._image.topics.get(source)
        replicas = 1 if found is None else len(found.partitions[0].replicas)
        bytes_max = self._config.topic({} if found is None else found.configs).max_message_bytes
        settings: dict[str, str | None] = {"max.message.bytes": str(min(bytes_max + ROOM_BYTES, 2**31 - 1))}
        wanted = NewTopic(name, self._config.num_partitions, replicas, settings)
        (made,) = await self._controller.create_topics([wanted])
        if isinstance(made, PenstockError) and not isinstance(made, TopicAlreadyExists):
            raise made


class _Refused(PenstockError):
    def __init__(self, code: ErrorCode, leader: int, message: str | None) -> None:
        super().__init__(f"broker {leader} answers {code.name}" + (f": {message}" if message else ""))
        self.code = code
