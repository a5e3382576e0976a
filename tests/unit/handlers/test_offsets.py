"""handlers.offsets: offsets by time and by epoch, and records deleted."""

import asyncio
import errno
import shutil
from typing import Any

import pytest

from penstock.clock import Rng, SystemClock
from penstock.config import BrokerConfig
from penstock.errors import ErrorCode, StorageFailed
from penstock.handlers import offsets
from penstock.handlers.offsets import handle_delete_records, handle_list_offsets, handle_offset_for_leader_epoch
from penstock.log.directory import LogDirectory, LogRequest
from penstock.model import LeaderEpoch, Offset, TopicPartition
from penstock.wire.apis import ApiKey

LIST, EPOCH, DELETE = ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS
LATEST, EARLIEST, NEWEST, EARLIEST_LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


async def list_offsets(node: Any, *asked: dict[str, Any], version: int | None = None, **more: Any) -> list[Any]:
    topics = [{"name": "orders", "partitions": list(asked)}]
    answer = await node.call(handle_list_offsets, LIST, version, topics=topics, **more)
    return list(answer.topics[0].partitions)


async def list_one(node: Any, timestamp: int, version: int | None = None, **more: Any) -> tuple[int, int, int]:
    """Error code, offset and timestamp."""
    (each,) = await list_offsets(node, {"partition_index": 0, "timestamp": timestamp}, version=version, **more)
    return int(each.error_code), each.offset, each.timestamp


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("orders", segment_bytes="1024", index_interval_bytes="0")
    node.append("orders", 100, 200, 300)
    node.append("orders", 900, 400)
    return node


async def test_every_version_tells_the_ends_and_looks_up_times(orders: Any) -> None:
    for version in range(1, 12):
        assert await list_one(orders, LATEST, version) == (0, 5, -1)
        assert await list_one(orders, EARLIEST, version) == (0, 0, -1)
        assert await list_one(orders, 250, version) == (0, 2, 300)
        assert await list_one(orders, 901, version) == (0, -1, -1)


async def test_the_record_with_the_newest_time_is_found(orders: Any) -> None:
    assert await list_one(orders, NEWEST) == (0, 3, 900)


async def test_an_empty_log_has_ends_but_no_times(node: Any) -> None:
    await node.create("orders")
    assert await list_one(node, LATEST) == (0, 0, -1)
    assert await list_one(node, EARLIEST) == (0, 0, -1)
    assert await list_one(node, NEWEST) == (0, -1, -1)
    assert await list_one(node, 0) == (0, -1, -1)


async def test_nothing_is_tiered(orders: Any) -> None:
    assert await list_one(orders, EARLIEST_LOCAL) == (0, 0, -1)
    assert await list_one(orders, TIERED) == (0, -1, -1)
    assert await list_one(orders, PENDING) == (0, -1, -1)


async def test_a_special_time_its_version_does_not_know_is_refused(orders: Any) -> None:
    for timestamp, version in [(NEWEST, 6), (EARLIEST_LOCAL, 7), (TIERED, 8), (PENDING, 10), (-7, 11)]:
        assert await list_one(orders, timestamp, version) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1)


async def test_a_reader_of_committed_records_is_told_the_last_stable_offset(node: Any) -> None:
    orders = node
    await orders.create("orders")
    orders.append("orders", 100, 200, 300)
    orders.append("orders", 900, 400, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert await list_one(orders, LATEST, isolation_level=1) == (0, 3, -1)
    assert await list_one(orders, LATEST, isolation_level=0) == (0, 5, -1)
    assert await list_one(orders, 301, isolation_level=1) == (0, -1, -1)
    assert await list_one(orders, NEWEST, isolation_level=1) == (0, 2, 300)


async def test_epochs_are_told_with_the_offsets(node: Any) -> None:
    await node.create("orders")
    partition = node.partition("orders")

    async def epoch(timestamp: int) -> int:
        (each,) = await list_offsets(node, {"partition_index": 0, "timestamp": timestamp})
        return each.leader_epoch

    partition.leader_epoch = LeaderEpoch(4)
    partition.log.begin_epoch(partition.leader_epoch)
    assert (await epoch(EARLIEST), await epoch(LATEST)) == (4, 4)
    node.append("orders", 100)
    partition.leader_epoch = LeaderEpoch(6)
    node.append("orders", 200)
    assert [await epoch(each) for each in (EARLIEST, 100, 200, LATEST, NEWEST)] == [4, 4, 6, 6, 6]


async def test_a_client_that_knows_another_leader_is_sent_to_look_again(orders: Any) -> None:
    orders.partition("orders").leader_epoch = LeaderEpoch(4)

    async def code(epoch: int) -> int:
        asked = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": epoch}
        (each,) = await list_offsets(orders, asked)
        return int(each.error_code)

    assert [await code(epoch) for epoch in (-1, 3, 4, 5)] == [
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


async def test_one_bad_partition_leaves_the_others_alone(orders: Any) -> None:
    good = {"partition_index": 0, "timestamp": LATEST}
    unknown = {"partition_index": 9, "timestamp": LATEST}
    answers = await list_offsets(orders, unknown, good)
    assert [int(each.error_code) for each in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    topics = [{"name": "nowhere", "partitions": [good]}, {"name": "orders", "partitions": []}]
    answer = await orders.call(handle_list_offsets, LIST, topics=topics)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[1].partitions == ()


async def test_a_partition_named_twice_is_refused_both_times(orders: Any) -> None:
    twice = {"partition_index": 0, "timestamp": LATEST}
    assert [int(each.error_code) for each in await list_offsets(orders, twice, twice)] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]


async def test_damage_is_the_brokers_fault(orders: Any) -> None:
    segment = orders.partition("orders").log.segments[0]
    segment.file.write_at(segment.size - 3, (b"\xff",))
    assert (await list_one(orders, 500))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert await list_one(orders, 50) == (0, 0, 100)


async def test_a_start_that_moves_during_the_search_is_not_undercut(
    orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = offsets.first_at

    def search_while_records_are_deleted(*arguments: Any) -> Any:
        found = search(*arguments)
        orders.partition("orders").log.log_start = Offset(4)
        return found

    monkeypatch.setattr(offsets, "first_at", search_while_records_are_deleted)
    assert await list_one(orders, 100) == (0, 4, 400)


# OffsetForLeaderEpoch


async def epoch_end(node: Any, epoch: int, version: int = 4, current: int = -1) -> tuple[int, int, int]:
    """Error code, epoch and its end."""
    asked = [{"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]
    topics = [{"topic": "orders", "partitions": asked}]
    answer = await node.call(handle_offset_for_leader_epoch, EPOCH, version, topics=topics)
    (each,) = answer.topics[0].partitions
    return int(each.error_code), each.leader_epoch, each.end_offset


@pytest.fixture
async def epochs(node: Any) -> Any:
    """Epoch 2 wrote offsets 0 and 1, epoch 5 wrote 2 to 4, epoch 7 leads and has written nothing."""
    await node.create("orders")
    partition = node.partition("orders")
    partition.leader_epoch = LeaderEpoch(2)
    node.append("orders", 1, 2)
    partition.leader_epoch = LeaderEpoch(5)
    node.append("orders", 3, 4, 5)
    partition.leader_epoch = LeaderEpoch(7)
    return node


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_an_epoch_ends_where_the_next_begins(epochs: Any, version: int) -> None:
    answers = {epoch: await epoch_end(epochs, epoch, version) for epoch in (2, 3, 5, 6, 7, 8, -1)}
    assert answers == {
        2: (0, 2, 2),
        3: (0, 2, 2),
        5: (0, 5, 5),
        6: (0, 5, 5),
        7: (0, 7, 5),
        8: (0, -1, -1),
        -1: (0, -1, -1),
    }


async def test_an_epoch_older_than_the_log_ended_where_the_log_starts(epochs: Any) -> None:
    assert await epoch_end(epochs, 1) == (0, 1, 0)
    epochs.partition("orders").log.advance_start(Offset(3))
    assert await epoch_end(epochs, 2) == (0, 2, 3)
    assert await epoch_end(epochs, 5) == (0, 5, 5)


async def test_epochs_of_an_unknown_partition_or_another_leader_are_not_told(epochs: Any) -> None:
    assert (await epoch_end(epochs, 2, current=6))[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert (await epoch_end(epochs, 2, current=8))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    topics = [{"topic": "nowhere", "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    answer = await epochs.call(handle_offset_for_leader_epoch, EPOCH, topics=topics)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# DeleteRecords


async def delete(node: Any, offset: int, version: int | None = None, name: str = "orders") -> tuple[int, int]:
    """Error code and low watermark."""
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}]
    answer = await node.call(handle_delete_records, DELETE, version, topics=topics, timeout=30_000)
    (each,) = answer.topics[0].partitions
    return int(each.error_code), each.low_watermark


def starts_after_a_crash(node: Any, name: str = "orders") -> list[int]:
    """Where the partitions would start if the broker ended now."""
    before = node.context.replicas.logs.root
    after = before.with_name("after a crash")
    shutil.copytree(before, after)
    again = LogDirectory(node.context.disk, after, SystemClock(), Rng(1))
    again.prepare()
    topic = node.context.image.topics[name]
    ats = [TopicPartition(name, index) for index in range(len(topic.partitions))]
    starts = [again.open_one(LogRequest(at, topic.id, BrokerConfig().topic({}))).log_start for at in ats]
    again.release()
    return starts


@pytest.mark.parametrize("version", range(3))
async def test_records_below_the_offset_are_gone_and_stay_gone(orders: Any, version: int) -> None:
    assert await delete(orders, 2, version) == (0, 2)
    assert orders.partition("orders").log.log_start == 2
    assert starts_after_a_crash(orders) == [2]
    assert await list_one(orders, EARLIEST) == (0, 2, -1)


async def test_minus_one_deletes_to_the_high_watermark_and_drops_whole_segments(orders: Any) -> None:
    for timestamp in range(1000, 1030):
        orders.append("orders", timestamp, timestamp, timestamp)
    log = orders.partition("orders").log
    assert len(log.segments) > 2
    assert await delete(orders, -1) == (0, 95)
    assert [segment.base_offset for segment in log.segments] == [95]
    assert orders.append("orders", 2000) == 95


async def test_a_start_below_the_present_one_changes_nothing(orders: Any) -> None:
    await delete(orders, 3)
    assert await delete(orders, 1) == (0, 3)
    assert await delete(orders, 0) == (0, 3)


@pytest.mark.parametrize("offset", [6, -2, 2**62])
async def test_an_offset_outside_the_log_is_refused(orders: Any, offset: int) -> None:
    assert await delete(orders, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert orders.partition("orders").log.log_start == 0


@pytest.mark.parametrize(
    ("policy", "code"), [("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0), ("delete", 0)]
)
async def test_a_topic_that_only_compacts_keeps_its_records(node: Any, policy: str, code: int) -> None:
    await node.create("orders", cleanup_policy=policy)
    node.append("orders", 1)
    assert (await delete(node, -1))[0] == code


async def test_the_brokers_own_topics_and_unknown_ones_are_refused(orders: Any) -> None:
    assert await delete(orders, 0, name="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert await delete(orders, 0, name="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_one_bad_partition_does_not_keep_another_from_being_cut(orders: Any) -> None:
    partitions = [{"partition_index": 7, "offset": 0}, {"partition_index": 0, "offset": 4}]
    topics = [{"name": "orders", "partitions": partitions}, {"name": "nowhere", "partitions": partitions[:1]}]
    answer = await orders.call(handle_delete_records, DELETE, topics=topics, timeout=30_000)
    seen = [(each.partition_index, int(each.error_code), each.low_watermark) for each in answer.topics[0].partitions]
    assert seen == [(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (0, 0, 4)]


async def test_records_are_deleted_past_the_start_of_an_open_transaction(node: Any) -> None:
    await node.create("orders")
    transaction = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    node.append("orders", 100, 200, base_sequence=0, **transaction)
    node.append("orders", 300, base_sequence=2, **transaction)
    assert await delete(node, 1) == (0, 1)
    assert await list_one(node, LATEST, isolation_level=1) == (0, 1, -1)
    assert await delete(node, -1) == (0, 3)
    assert await list_one(node, LATEST, isolation_level=1) == (0, 3, -1)
    node.append("orders", 400)
    assert await list_one(node, LATEST, isolation_level=1) == (0, 3, -1), "its marker has not come"


async def test_records_that_were_never_synced_are_synced_before_they_are_cut_off(orders: Any) -> None:
    log = orders.partition("orders").log
    assert log.durable_offset == 0
    assert await delete(orders, 5) == (0, 5)
    assert log.durable_offset == 5


async def test_a_cut_is_not_acknowledged_if_what_it_cuts_off_could_not_be_synced(
    orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = orders.partition("orders").log

    def fail(_: Any) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as broken:
        broken.setattr(type(log.segments[-1].file), "sync", fail)
        assert await delete(orders, 5) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


async def test_deletions_at_the_same_time_all_end_on_disk(node: Any) -> None:
    await node.create("orders", 8)
    for index in range(8):
        node.append("orders", 1, 2, 3, index=index)

    async def cut(index: int) -> int:
        topics = [{"name": "orders", "partitions": [{"partition_index": index, "offset": index % 3 + 1}]}]
        answer = await node.call(handle_delete_records, DELETE, topics=topics, timeout=30_000)
        return int(answer.topics[0].partitions[0].error_code)

    assert await asyncio.gather(*(cut(index) for index in range(8))) == [0] * 8
    assert starts_after_a_crash(node) == [index % 3 + 1 for index in range(8)]


async def test_a_start_that_could_not_be_written_is_not_acknowledged(
    orders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(LogDirectory, "save_points", fail)
    segments = list(orders.partition("orders").log.segments)
    assert await delete(orders, -1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert orders.partition("orders").log.segments == segments
    monkeypatch.undo()


async def test_a_log_that_has_failed_is_not_cut(orders: Any) -> None:
    log = orders.partition("orders").log
    log.failure = StorageFailed("the disk is gone")
    assert await delete(orders, -1) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    log.failure = None


async def test_time_that_is_up_is_told(orders: Any) -> None:
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]
    answer = await orders.call(handle_delete_records, DELETE, topics=topics, timeout=0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
