"""A transactional producer on a simulated cluster: TV1 or TV2, commits and aborts, every answer that does not come.

Called by simulate. A transaction writes the same number to every partition of its topic; what the coordinator said of
it is kept in the model, which then knows of every transaction that it was committed, aborted, or may be either.
"""

import asyncio
from typing import Any

from tests.simulation.client import LOST, Client
from tests.simulation.load import TRANSACTION, Over
from tests.simulation.model import Model

from penstock.errors import ErrorCode
from penstock.records.record import Record, encode_batch
from penstock.wire.apis import ApiKey

TIMEOUT_MS = 8_000
ABORT_CHANCE = 0.2
ROUNDS_MAX = 40

# The coordinator or the leader has another opinion of this producer: it begins anew, with a new epoch.
DISOWNED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


class Disowned(Exception):
    """This transaction has no future; whether it has a past is another question."""


class TransactionalProducer:
    def __init__(
        self, client: Client, model: Model, topic: str, partitions: int, over: Over, *, is_version_2: bool
    ) -> None:
        self._client = client
        self._model = model
        self._topic, self._partitions = topic, partitions
        self._over = over
        self._is_version_2 = is_version_2
        self._id = f"id-of-{client.host.name}"
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[int, int] = {}
        self._number = 0

    async def run(self) -> None:
        await self._init()
        while not self._over.is_set:
            try:
                await self._transaction()
            except Disowned:
                await self._init()
            await asyncio.sleep(0.2 * self._client.world.chance.random())

    async def _transaction(self) -> None:
        number, self._number = self._number, self._number + 1
        chance = self._client.world.chance
        self._model.begun[number] = None
        try:
            if not self._is_version_2:
                await self._add_partitions()
            for index in range(self._partitions):
                await self._produce(index, number)
        except Disowned:
            # Never asked to commit, so it can only have been aborted, or will be.
            self._model.aborted[number] = None
            raise
        is_commit = chance.random() >= ABORT_CHANCE
        if not is_commit:
            self._model.aborted[number] = None
        await self._end(is_commit)
        if is_commit:
            self._model.committed[number] = None
            for index in range(self._partitions):
                self._model.acknowledge(self._topic, index, [self._value(index, number)], -1)

    def _value(self, index: int, number: int) -> bytes:
        return f"{self._client.host.name}/{index}/{number}".encode()

    async def _init(self) -> None:
        body = {
            "transactional_id": self._id,
            "transaction_timeout": TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        while True:
            answer = await self._coordinator(ApiKey.INIT_PRODUCER_ID, 4, body)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
                self._sequences.clear()
                return
            await self._client.back_off()

    async def _add_partitions(self) -> None:
        body = {
            "v3_and_below_transactional_id": self._id,
            "v3_and_below_producer_id": self._producer_id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": [{"name": self._topic, "partitions": list(range(self._partitions))}],
        }
        for _ in range(ROUNDS_MAX):
            answer = await self._coordinator(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
            if answer is not None:
                codes = {
                    each.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for each in topic.results_by_partition
                }
                if codes == {ErrorCode.NONE}:
                    return
                if codes & DISOWNED:
                    raise Disowned
            await self._client.back_off()
        raise Disowned

    async def _produce(self, index: int, number: int) -> None:
        value = self._value(index, number)
        sequence = self._sequences.get(index, 0)
        records = encode_batch(
            [Record(0, 1_700_000_000_000, None, value)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._model.at(self._topic, index).sent[value] = None
        part = {"index": index, "records": bytes(records)}
        body = {
            "transactional_id": self._id,
            "acks": -1,
            "timeout": 1_500,
            "topic_data": [{"name": self._topic, "partition_data": [part]}],
        }
        for _ in range(ROUNDS_MAX):
            code = await self._produce_once(index, body)
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._sequences[index] = sequence + 1
                return
            if code in DISOWNED:
                raise Disowned
            self._client.forget_leader(self._topic, index)
            await self._client.back_off()
        raise Disowned

    async def _produce_once(self, index: int, body: dict[str, Any]) -> int | None:
        try:
            leader = await self._client.leader(self._topic, index)
            if leader is None:
                return None
            answer = await self._client.ask(leader, ApiKey.PRODUCE, 12 if self._is_version_2 else 9, body)
        except LOST:
            return None
        return answer.responses[0].partition_responses[0].error_code

    async def _end(self, is_commit: bool) -> None:
        body = {
            "transactional_id": self._id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "committed": is_commit,
        }
        while True:
            answer = await self._coordinator(ApiKey.END_TXN, 5 if self._is_version_2 else 4, body)
            if answer is not None:
                if answer.error_code == ErrorCode.NONE:
                    break
                if answer.error_code in DISOWNED:
                    raise Disowned
            await self._client.back_off()
        if self._is_version_2:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    async def _coordinator(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """The coordinator's answer; None where there is none, or it is somebody else's to give."""
        try:
            coordinator = await self._client.coordinator(self._id, TRANSACTION)
            if coordinator is None:
                return None
            answer = await self._client.ask(coordinator, api_key, version, body)
        except LOST:
            self._client.forget_coordinator(self._id, TRANSACTION)
            return None
        code = getattr(answer, "error_code", ErrorCode.NONE)
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._client.forget_coordinator(self._id, TRANSACTION)
            return None
        return answer
