"""Transactions over the wire for the tests of handlers: what a client of either version sends, step by step."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.errors import ErrorCode
from penstock.handlers import groups, producer_ids, transaction_listing, transactions
from penstock.handlers.answers import made
from penstock.handlers.context import RawRequest
from penstock.handlers.produce import handle_produce
from penstock.model import TRANSACTION_STATE_TOPIC
from penstock.records.record import Record, encode_batch
from penstock.wire.apis import BY_KEY, ApiKey
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.primitives import skip_tags

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
TIMEOUT_MS = 60_000
TURNS_MAX = 100_000


def versions(api_key: ApiKey) -> list[int]:
    api = BY_KEY[api_key]
    return list(range(api.low, api.high + 1))


class Producer:
    """One transactional id and what it was given; every call gives error codes by name."""

    def __init__(self, node: Any, transactional_id: str) -> None:
        self.node = node
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def init(self, version: int | None = None, **body: Any) -> str:
        """Asks again while the coordinator loads, as a client does."""
        body = {"transactional_id": self.transactional_id, "transaction_timeout": TIMEOUT_MS, **body}
        while True:
            answer = await self.node.call(
                producer_ids.handle_init_producer_id, ApiKey.INIT_PRODUCER_ID, version, **body
            )
            code = name(answer.error_code)
            if code not in ("COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"):
                break
            await asyncio.sleep(0)
        if code == "NONE":
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return code

    async def add(self, *partitions: tuple[str, int], version: int = 3, **body: Any) -> dict[tuple[str, int], str]:
        topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
        identity = {f"v3_and_below_{key}": value for key, value in (self.identity | body).items()}
        answer = await self.node.call(
            transactions.handle_add_partitions_to_txn,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            **identity,
            v3_and_below_topics=topics,
        )
        return codes_by_partition(answer.results_by_topic_v3_and_below)

    async def add_offsets(self, group_id: str = "g", version: int = 3, **body: Any) -> str:
        answer = await self.node.call(
            transactions.handle_add_offsets_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN,
            version,
            **(self.identity | {"group_id": group_id} | body),
        )
        return name(answer.error_code)

    async def commit_offsets(self, offset: int, version: int = 3, topic: str = "orders", **body: Any) -> str:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        answer = await self.node.call(
            transactions.handle_txn_offset_commit,
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            **(self.identity | {"group_id": "g", "topics": [{"name": topic, "partitions": partitions}]} | body),
        )
        return name(answer.topics[0].partitions[0].error_code)

    async def end(self, is_commit: bool, version: int = 3, **body: Any) -> str:
        """Asks again while the transaction before is still being ended, as a client does."""
        asked = self.identity | {"committed": is_commit} | body
        while True:
            answer = await self.node.call(transactions.handle_end_txn, ApiKey.END_TXN, version, **asked)
            if name(answer.error_code) != "CONCURRENT_TRANSACTIONS":
                break
            await asyncio.sleep(0)
        if answer.error_code == 0 and version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return name(answer.error_code)

    def batch(self, topic: str = "orders", index: int = 0, **options: Any) -> bytes:
        sequence = self.sequences.get((topic, index), 0)
        options = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
            **options,
        }
        return bytes(encode_batch([Record(0, self.node.context.clock.now_ms(), b"key", b"value")], **options))

    async def produce(
        self, topic: str = "orders", index: int = 0, version: int = 9, records: bytes | None = None, **body: Any
    ) -> str:
        records = records or self.batch(topic, index)
        code = (
            await produce(self.node, version, [(topic, index, records)], transactional_id=self.transactional_id, **body)
        )[0]
        if code == "NONE":
            self.sequences[topic, index] = self.sequences.get((topic, index), 0) + 1
        return code

    async def state(self) -> str:
        return (await self.description()).transaction_state

    async def description(self) -> Any:
        (found,) = (
            await self.node.call(
                transaction_listing.handle_describe_transactions,
                ApiKey.DESCRIBE_TRANSACTIONS,
                transactional_ids=[self.transactional_id],
            )
        ).transaction_states
        return found

    async def settled(self) -> str:
        """The state once no marker is on its way."""

        async def is_settled() -> bool:
            return not (await self.state()).startswith("Prepare")

        await until(is_settled)
        return await self.state()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once it holds: the turns of the loop are the waiting."""
    for _ in range(TURNS_MAX):
        if await condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


async def producer(node: Any, transactional_id: str = "t", **init: Any) -> Producer:
    """A producer that was given its id and epoch."""
    if TRANSACTION_STATE_TOPIC not in node.context.image.topics:
        await node.call(
            groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=[transactional_id]
        )
    one = Producer(node, transactional_id)
    assert await one.init(**init) == "NONE"
    return one


def start_produce(node: Any, version: int, batches: list[tuple[str, int, bytes]], **body: Any) -> Any:
    """What the handler gives back at once: a frame, or a future of one."""
    ids = {topic: node.context.image.topics[topic].id for topic, _, _ in batches} if version >= 13 else {}
    data = [
        {
            **({"topic_id": ids[topic]} if version >= 13 else {"name": topic}),
            "partition_data": [{"index": index, "records": records}],
        }
        for topic, index, records in batches
    ]
    raw = bytearray(
        encode_request(ApiKey.PRODUCE, version, {"acks": -1, "timeout": 30_000, "topic_data": data, **body})
    )
    request = RawRequest(version, 7, "a-client", node.connection, memoryview(raw), 0, node.context.clock.monotonic())
    answer = handle_produce(node.context, request)
    # The connection reads the next frame into the same buffer: nothing may depend on it any more.
    raw[:] = b"\xaa" * len(raw)
    return answer


async def produce(node: Any, version: int, batches: list[tuple[str, int, bytes]], **body: Any) -> list[str]:
    """The outcome of each batch."""
    answer = start_produce(node, version, batches, **body)
    return outcomes(await made(answer), version)


def outcomes(frame: bytes, version: int) -> list[str]:
    offset = skip_tags(memoryview(frame), 8) if BY_KEY[ApiKey.PRODUCE].is_flexible(version) else 8
    answer = decode_response(ApiKey.PRODUCE, version, frame[offset:])
    return [name(result.error_code) for topic in answer.responses for result in topic.partition_responses]


def codes_by_partition(topics: Any) -> dict[tuple[str, int], str]:
    return {
        (topic.name, result.partition_index): name(result.partition_error_code)
        for topic in topics
        for result in topic.results_by_partition
    }


def name(code: int) -> str:
    return ErrorCode(code).name
