"""Ten thousand hostile frames against one broker, with a thousand half-open connections and one honest client beside.

Every frame earns an answer or a closed connection; the broker stays alive, its memory within 64 MiB of what it was,
its log without a traceback, and the honest client reads back what it wrote. The frames follow from a seed, which is
printed; HOSTILE_SEED chooses another, HOSTILE_FRAMES how many there are of each version of each API.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from typing import Any

from hostile_frames import TOPIC, Hostile, bombs, misframed, mutated, odd, valid
from hostile_session import HonestClient, allow_many_files, create_topics, half_open_connections, send_all
from largest_requests import WIDE_PARTITIONS, describe_configs, largest_requests

from penstock.client.connection import ClientConnection
from penstock.errors import ErrorCode
from penstock.wire.apis import ApiKey
from penstock.wire.frame import request_frame
from penstock.wire.messages import encode_request

SEED = int(os.environ.get("HOSTILE_SEED", "41"))
FRAMES_EACH = int(os.environ.get("HOSTILE_FRAMES", "50"))
FRAMES_MIN = 10_000
HALF_OPEN = 1000
GROWTH_MAX = 64 << 20


async def test_hostile_frames_disturb_nobody(start_broker: Any, watch_memory: Any) -> None:
    print(f"HOSTILE_SEED={SEED} HOSTILE_FRAMES={FRAMES_EACH}")  # noqa: T201
    allow_many_files(HALF_OPEN)
    broker = await start_broker("penstock.frame.timeout.ms=600000", "group.initial.rebalance.delay.ms=0")
    await create_topics(broker.endpoint, **{TOPIC: {}, "honest": {}})
    warm = await send_all(broker.endpoint, valid())
    assert warm.wrong == []

    memory = watch_memory(broker)
    honest = HonestClient(broker.endpoint, "honest")
    async with half_open_connections(broker.endpoint, HALF_OPEN) as held, asyncio.TaskGroup() as tasks:
        tasks.create_task(honest.run())
        rng = random.Random(SEED)
        outcomes = await send_all(broker.endpoint, mutated(rng, FRAMES_EACH))
        others = await send_all(broker.endpoint, misframed(rng, max(1500, FRAMES_EACH)))
        oddities = await send_all(broker.endpoint, odd(rng, FRAMES_EACH // 2))
        rounds = honest.rounds
        honest.stop()
        assert not any(reader.at_eof() or reader.exception() for reader in held)
    await memory.stop()

    counts = outcomes.counts + others.counts + oddities.counts
    print(f"{dict(counts)}; {rounds} honest rounds; +{memory.growth >> 20} MiB")  # noqa: T201
    assert outcomes.wrong + others.wrong + oddities.wrong == []
    assert counts.total() >= FRAMES_MIN
    assert min(counts["answered"], counts["closed"]) > counts.total() // 10
    assert counts["waiting"] < counts.total() // 10
    assert rounds > 0
    assert memory.growth <= GROWTH_MAX
    assert broker.is_alive
    assert await broker.stop() == 0
    assert "Traceback" not in broker.log
    assert " ERROR " not in broker.log


@contextlib.asynccontextmanager
async def watched(broker: Any, watch_memory: Any) -> AsyncIterator[ClientConnection]:
    """A connection for the hostile, beside an honest client; at the end everything is as it should be."""
    await send_all(broker.endpoint, valid())
    await create_topics(broker.endpoint, honest={})
    memory, honest = watch_memory(broker), HonestClient(broker.endpoint, "honest")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(honest.run())
        try:
            async with await ClientConnection.connect(broker.endpoint, timeout_s=60) as connection:
                yield connection
        finally:
            honest.stop()
    await memory.stop()
    kept = broker.resident_bytes - memory.before
    print(f"+{memory.growth >> 20} MiB, {kept >> 20} MiB kept; {honest.rounds} honest rounds")  # noqa: T201
    assert honest.rounds > 0
    assert kept <= GROWTH_MAX
    assert await broker.stop() == 0
    assert "Traceback" not in broker.log
    assert " ERROR " not in broker.log


COMPRESSIONS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


async def test_bombs_are_defused_wherever_records_are_unpacked(start_broker: Any, watch_memory: Any) -> None:
    broker = await start_broker()
    unpacking: dict[str, dict[str, str]] = {f"to-{name}": {"compression.type": name} for name in COMPRESSIONS}
    unpacking["compacted"] = {"cleanup.policy": "compact"}
    await create_topics(broker.endpoint, **unpacking)
    refusals = (
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    )
    async with watched(broker, watch_memory) as connection:
        for bomb in bombs():
            for topic in unpacking if bomb.times == 1 else ("compacted",):
                partitions = [{"index": 0, "records": bomb.batch}] * bomb.times
                data = [{"name": topic, "partition_data": partitions}]
                memory = watch_memory(broker)
                answer = await connection.request(ApiKey.PRODUCE, 9, {"acks": 1, "topic_data": data})
                await memory.stop()
                assert memory.growth <= GROWTH_MAX, bomb.what
                results = answer.responses[0].partition_responses
                codes = {ErrorCode(result.error_code) for result in results[:1]}
                if topic == "compacted":
                    assert codes <= {*refusals}, (bomb.what, codes)
                else:
                    # What is already compressed as the topic wants it is kept as it is, bomb or not.
                    is_unpacked = topic != f"to-{bomb.compression}" and bomb.is_large
                    assert codes <= {*refusals, *(() if is_unpacked else (ErrorCode.NONE,))}, (bomb.what, topic, codes)


async def test_the_largest_legal_requests_cost_no_more_than_they_may(start_broker: Any, watch_memory: Any) -> None:
    broker = await start_broker()
    wide = await create_wide(broker)
    async with watched(broker, watch_memory):
        await ask_each(broker, watch_memory, largest_requests(wide))


async def test_settings_asked_for_often_cost_no_more_than_they_may(start_broker: Any, watch_memory: Any) -> None:
    broker = await start_broker()
    async with watched(broker, watch_memory):
        await ask_each(broker, watch_memory, [(ApiKey.DESCRIBE_CONFIGS, 4, describe_configs("1", 2000))])


async def create_wide(broker: Any) -> Any:
    wish = {"name": "wide", "num_partitions": WIDE_PARTITIONS, "replication_factor": 1}
    async with await ClientConnection.connect(broker.endpoint) as connection:
        answer = await connection.request(ApiKey.CREATE_TOPICS, 7, {"topics": [wish], "timeout": 30_000})
        return answer.topics[0].topic_id


async def ask_each(broker: Any, watch_memory: Any, requests: list[tuple[ApiKey, int, dict[str, Any]]]) -> None:
    """One after the other; what they are answered is nobody's concern here, only what that costs."""
    for key, version, body in requests:
        frame = request_frame(key, version, 1, "hostile", encode_request(key, version, body))
        memory = watch_memory(broker)
        outcomes = await send_all(broker.endpoint, iter([Hostile(key.name, frame)]), lanes=1, answer_s=60)
        await memory.stop()
        assert outcomes.counts["waiting"] == 0, key
        assert memory.growth <= GROWTH_MAX, key
