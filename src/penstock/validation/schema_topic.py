"""The registry's schemas as this broker knows them: read from the schemas topic, whoever leads it.

Called by validation.py. Laws:
- An id is said to be unknown only by a reading that went to the end the topic had after the question came.
- What is known is never half of the topic: until it was read once, and after it was made anew, nothing is known.
- While the topic cannot be read, what was known stays; whoever needs more hears NotNow.
"""

import asyncio
import time
from uuid import UUID

from penstock.cluster.image import ClusterImage
from penstock.disk import Disk
from penstock.errors import OffsetOutOfRange, PenstockError
from penstock.replication.replicas import Replicas
from penstock.schemas.schema import SchemaError
from penstock.schemas.stored.closure import closure_of_content
from penstock.schemas.stored.names import DEFAULT_CONTEXT
from penstock.schemas.stored.state import State
from penstock.validation.judging import Registered
from penstock.validation.log_reading import Leader, LeaderElsewhere, LeaderHere, Requests, read_chunk
from penstock.validation.rules import NotNow

READ_S_MAX = 5.0
"""How long a batch waits for what the topic says. A reading that was not done by then goes on where it stopped."""
REFRESH_S = 10.0
"""How old what is known may get while it is in use: a schema that was deleted is taken no longer than this."""


class SchemaTopic:
    def __init__(self, name: str, image: ClusterImage, replicas: Replicas, disk: Disk, ask: Requests) -> None:
        self.name = name
        self._image = image
        self._replicas = replicas
        self._disk = disk
        self._ask = ask
        self._state = State()
        self._topic_id: UUID | None = None
        self._position = 0
        self._is_loaded = False
        self._read_at = 0.0
        self._known: tuple[int, dict[int, Registered]] = (-1, {})
        # Readings are numbered as they are asked for; one that begins later than a question answers it.
        self._asked = self._done = 0
        self._failed: tuple[int, NotNow] | None = None
        self._reading = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def known(self) -> dict[int, Registered]:
        """What has been looked up so far; the topic is read first if it never was. Raises NotNow."""
        if not self._is_loaded:
            await self.catch_up()
        elif time.monotonic() - self._read_at > REFRESH_S and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())
        epoch, known = self._known
        if epoch != self._state.epoch:
            known = {}
            self._known = self._state.epoch, known
        return known

    async def look_up(self, ids: frozenset[int]) -> dict[int, Registered]:
        """What is known once the topic was read to its end, these ids included. Raises NotNow."""
        await self.catch_up()
        known = await self.known()
        for schema_id in ids:
            found = self._find(schema_id)
            if found is not None:  # what is unknown has no end, and is looked for again anyway
                known[schema_id] = found
        return known

    async def catch_up(self) -> None:
        """All that was committed before the call is known after it. Whoever comes meanwhile shares the next reading."""
        self._asked += 1
        ticket = self._asked
        async with self._reading:
            if self._done >= ticket:
                return
            if self._failed is not None and self._failed[0] >= ticket:
                raise self._failed[1]
            started = self._asked
            try:
                async with asyncio.timeout(READ_S_MAX):
                    await self._read_to_end()
            except (PenstockError, TimeoutError) as error:
                why = "it is still being read" if isinstance(error, TimeoutError) else str(error)
                failure = NotNow(f"nothing was written: the schemas topic {self.name} cannot be read now: {why}")
                self._failed = started, failure
                raise failure from error
            finally:
                self._read_at = time.monotonic()
            self._done = started

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    async def _refresh(self) -> None:
        try:
            await self.catch_up()
        except NotNow:
            return  # what is known stays; the next unknown id tells its producer why

    async def _read_to_end(self) -> None:
        leader = self._leader()
        end = await leader.end()
        while self._position < end:
            try:
                chunk = await leader.read(self._position)
            except OffsetOutOfRange as error:
                # Not yet begun, or records were deleted: what is left is read from its beginning.
                if self._position == error.start:
                    raise
                self._begin(leader.topic_id, error.start)
                continue
            reads, position = await self._disk.run(read_chunk, chunk, self._position)
            if position <= self._position:
                raise NotNow(f"nothing can be read at {self._position}, below its end {end}")
            for read in reads:
                self._state.apply(read)
            self._position = position
        self._is_loaded = True

    def _leader(self) -> Leader:
        topic = self._image.topics.get(self.name)
        if topic is None:
            self._is_loaded = False
            raise NotNow("there is no such topic; start a schema registry (`penstock gateway`) and register a schema")
        if topic.id != self._topic_id:
            self._begin(topic.id, 0)
        leader = topic.partitions[0].leader
        if leader == self._replicas.node_id:
            return LeaderHere(topic.id, self._replicas.find(self.name, 0), self._disk)
        return LeaderElsewhere(topic.id, self.name, leader, self._ask)

    def _begin(self, topic_id: UUID, position: int) -> None:
        state = State()
        # Answers made from the state before must not pass for answers of this one.
        state.epoch = self._state.epoch + 1
        self._state, self._topic_id, self._position, self._is_loaded = state, topic_id, position, False

    def _find(self, schema_id: int) -> Registered | None:
        holders = self._state.holders(DEFAULT_CONTEXT, schema_id)
        live = [] if holders is None else [held for held in holders.versions.values() if not held.deleted]
        if not live:
            return None
        try:
            schema = closure_of_content(self._state, live[0].subject, live[0].content)
        except SchemaError as error:
            return Registered(frozenset(held.subject for held in live), error)
        return Registered(frozenset(held.subject for held in live), schema)
