"""handlers.transactions: what joins and ends a transaction, in every version, and the code of what may not."""

from typing import Any

import pytest
from tests.unit.handlers.transacting import SETTINGS, Producer, codes_by_partition, name, producer, until, versions

from penstock.handlers import groups, transactions
from penstock.handlers.group_offsets import handle_offset_fetch
from penstock.model import GROUP_OFFSETS_TOPIC
from penstock.records.batch import read_header
from penstock.records.markers import ControlType, decode_marker
from penstock.records.record import decode_records
from penstock.wire.apis import ApiKey

ADD, ADD_OFFSETS, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN
COMMIT_OFFSETS, WRITE_MARKERS = ApiKey.TXN_OFFSET_COMMIT, ApiKey.WRITE_TXN_MARKERS
BATCHED = [version for version in versions(ADD) if version >= 4]
SINGLE = [version for version in versions(ADD) if version < 4]


@pytest.fixture
def settings() -> dict[str, str]:
    return {**SETTINGS, "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
async def orders(node: Any) -> Any:
    await node.create("orders", 3)
    return node


async def add_batched(node: Any, version: int, *transactions_asked: dict[str, Any]) -> dict[str, dict[Any, str]]:
    answer = await node.call(transactions.handle_add_partitions_to_txn, ADD, version, transactions=transactions_asked)
    assert answer.error_code == 0
    return {
        result.transactional_id: codes_by_partition(result.topic_results) for result in answer.results_by_transaction
    }


async def committed(node: Any, *, require_stable: bool = False) -> tuple[int, str]:
    answer = await node.call(
        handle_offset_fetch,
        ApiKey.OFFSET_FETCH,
        7,
        group_id="g",
        topics=[{"name": "orders", "partition_indexes": [0]}],
        require_stable=require_stable,
    )
    (partition,) = answer.topics[0].partitions
    return partition.committed_offset, name(partition.error_code)


async def groups_are_served(node: Any) -> None:
    await node.call(groups.handle_find_coordinator, ApiKey.FIND_COORDINATOR, 0, key="g")

    async def is_loaded() -> bool:
        answer = await node.call(groups.handle_describe_groups, ApiKey.DESCRIBE_GROUPS, 0, groups=["g"])
        return answer.groups[0].error_code == 0

    await until(is_loaded)


def markers(node: Any, topic: str, index: int = 0) -> list[tuple[ControlType, int]]:
    """Every marker in the partition: what it says, and the epoch it has."""
    log = node.partition(topic, index).log
    found: list[tuple[ControlType, int]] = []
    offset = log.log_start
    while offset < log.next_offset:
        view = log.read(offset, 1, log.next_offset, cached_only=False)
        header = read_header(view)
        if header.is_control:
            (record,) = decode_records(view[: header.size], header, 1 << 20)
            found.append((decode_marker(record).control_type, header.producer_epoch))
        offset = header.next_offset
    return found


# The whole of it


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", versions(END))
async def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    orders: Any, version: int, is_commit: bool
) -> None:
    one = await producer(orders)
    assert await one.add(("orders", 0), ("orders", 2)) == {("orders", 0): "NONE", ("orders", 2): "NONE"}
    assert await one.produce("orders", 0) == await one.produce("orders", 2) == "NONE"
    assert await one.end(is_commit, version) == "NONE"
    assert await one.settled() == ("CompleteCommit" if is_commit else "CompleteAbort")
    # From version 5 a transaction ends with a new epoch, for its markers and for what its producer does next.
    epoch = 1 if version >= 5 else 0
    assert one.epoch == epoch
    expected = [(ControlType.COMMIT if is_commit else ControlType.ABORT, epoch)]
    assert [markers(orders, "orders", index) for index in range(3)] == [expected, [], expected]


@pytest.mark.parametrize("version", versions(END))
async def test_an_end_that_is_repeated_says_the_same_and_the_opposite_is_refused(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    before = one.identity
    assert await one.end(True, version) == "NONE"
    after = one.identity
    assert await one.settled() == "CompleteCommit"
    assert await one.end(True, version, **before) == "NONE"
    assert one.identity == after
    assert await one.end(False, version, **before) == "INVALID_TXN_STATE"
    assert len(markers(orders, "orders")) == 1


@pytest.mark.parametrize("version", versions(END))
async def test_nothing_can_be_committed_where_nothing_was_begun(orders: Any, version: int) -> None:
    one = await producer(orders)
    assert await one.end(True, version) == "INVALID_TXN_STATE"


# Who may


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "an id nobody has": ({"transactional_id": "nobody"}, "INVALID_PRODUCER_ID_MAPPING"),
    "no id": ({"transactional_id": ""}, "INVALID_REQUEST"),
    "another producer id": ({"producer_id": 987_654}, "INVALID_PRODUCER_ID_MAPPING"),
    "an old epoch": ({"producer_epoch": 0}, "PRODUCER_FENCED"),
    "an epoch to come": ({"producer_epoch": 9}, "PRODUCER_FENCED"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_stranger_changes_nothing_and_hears_why(orders: Any, fault: str) -> None:
    changes, code = FAULTS[fault]
    one = await producer(orders)
    assert await one.init() == "NONE"
    assert one.epoch == 1
    await groups_are_served(orders)

    def told(version: int) -> str:
        # The first two versions have no word for a fenced producer.
        return "INVALID_PRODUCER_EPOCH" if code == "PRODUCER_FENCED" and version < 2 else code

    for version in SINGLE:
        assert await one.add(("orders", 0), version=version, **changes) == {("orders", 0): told(version)}
    for version in BATCHED:
        asked = one.identity | changes | {"topics": [{"name": "orders", "partitions": [0]}]}
        assert set((await add_batched(orders, version, asked)).popitem()[1].values()) == {code}
    for version in versions(ADD_OFFSETS):
        assert await one.add_offsets(version=version, **changes) == told(version)
    for version in versions(END):
        assert await one.end(False, version, **changes) == told(version)
    for version in versions(COMMIT_OFFSETS):
        said = "INVALID_PRODUCER_EPOCH" if code == "PRODUCER_FENCED" else code
        assert await one.commit_offsets(5, version, **changes) == said
    assert await one.state() == "Empty"
    assert (await committed(orders))[0] == -1


# Partitions


@pytest.mark.parametrize("version", SINGLE)
async def test_partitions_join_a_transaction(orders: Any, version: int) -> None:
    one = await producer(orders)
    for _ in range(2):
        assert await one.add(("orders", 2), ("orders", 1), version=version) == {
            ("orders", 1): "NONE",
            ("orders", 2): "NONE",
        }
    (topic,) = (await one.description()).topics
    assert (topic.topic, topic.partitions) == ("orders", (1, 2))


@pytest.mark.parametrize("version", SINGLE)
async def test_one_unknown_partition_keeps_the_others_out(orders: Any, version: int) -> None:
    one = await producer(orders)
    answer = await one.add(("orders", 0), ("orders", 3), ("orders", -1), ("nowhere", 0), version=version)
    assert answer == {
        ("orders", 0): "OPERATION_NOT_ATTEMPTED",
        ("orders", 3): "UNKNOWN_TOPIC_OR_PARTITION",
        ("orders", -1): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert await one.state() == "Empty"


@pytest.mark.parametrize("version", BATCHED)
async def test_several_transactions_in_one_request_have_their_own_outcomes(orders: Any, version: int) -> None:
    one, two = await producer(orders, "one"), await producer(orders, "two")
    topics = [{"name": "orders", "partitions": [0, 1]}]
    answer = await add_batched(
        orders,
        version,
        one.identity | {"topics": topics},
        two.identity | {"topics": [*topics, {"name": "nowhere", "partitions": [0]}]},
        {"transactional_id": "three", "producer_id": 5, "producer_epoch": 0, "topics": topics},
    )
    assert answer == {
        "one": {("orders", 0): "NONE", ("orders", 1): "NONE"},
        "two": {
            ("orders", 0): "OPERATION_NOT_ATTEMPTED",
            ("orders", 1): "OPERATION_NOT_ATTEMPTED",
            ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        },
        "three": {("orders", 0): "INVALID_PRODUCER_ID_MAPPING", ("orders", 1): "INVALID_PRODUCER_ID_MAPPING"},
    }
    assert (await one.state(), await two.state()) == ("Ongoing", "Empty")


@pytest.mark.parametrize("version", BATCHED)
async def test_who_only_asks_adds_nothing(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    asked = one.identity | {"verify_only": True, "topics": [{"name": "orders", "partitions": [0, 1]}]}
    for _ in range(2):
        assert await add_batched(orders, version, asked) == {
            "t": {("orders", 0): "NONE", ("orders", 1): "TRANSACTION_ABORTABLE"}
        }


@pytest.mark.parametrize("version", versions(ADD))
async def test_a_partition_named_twice_is_answered_once_and_none_not_at_all(orders: Any, version: int) -> None:
    one = await producer(orders)
    twice = [{"name": "orders", "partitions": [0, 0]}, {"name": "orders", "partitions": [0]}]
    for topics, expected in ((twice, [("orders", [(0, 0)])]), ([], []), ([{"name": "orders"}], [("orders", [])])):
        if version >= 4:
            body: dict[str, Any] = {"transactions": [one.identity | {"topics": topics}]}
        else:
            body = {f"v3_and_below_{key}": value for key, value in one.identity.items()}
            body["v3_and_below_topics"] = topics
        answer = await orders.call(transactions.handle_add_partitions_to_txn, ADD, version, **body)
        results = (
            answer.results_by_transaction[0].topic_results if version >= 4 else answer.results_by_topic_v3_and_below
        )
        assert [
            (topic.name, [(one.partition_index, one.partition_error_code) for one in topic.results_by_partition])
            for topic in results
        ] == expected


@pytest.mark.parametrize("version", BATCHED)
async def test_a_request_about_no_transaction_is_answered(orders: Any, version: int) -> None:
    await producer(orders)
    assert await add_batched(orders, version) == {}


# Offsets


@pytest.mark.parametrize("version", versions(ADD_OFFSETS))
async def test_the_partition_of_a_groups_offsets_joins_a_transaction(orders: Any, version: int) -> None:
    one = await producer(orders)
    assert await one.add_offsets("g", version) == "NONE"
    (topic,) = (await one.description()).topics
    assert (topic.topic, topic.partitions) == (GROUP_OFFSETS_TOPIC, (orders.context.groups.partition_of("g"),))


@pytest.mark.parametrize("version", versions(COMMIT_OFFSETS))
async def test_offsets_count_from_the_commit_of_their_transaction_on(orders: Any, version: int) -> None:
    one = await producer(orders)
    await groups_are_served(orders)
    for offset, is_commit in ((5, True), (6, False), (7, True)):
        before = (await committed(orders))[0]
        if version < 5:
            assert await one.add_offsets() == "NONE"
        assert await one.commit_offsets(offset, version) == "NONE"
        assert await committed(orders) == (before, "NONE")
        assert (await committed(orders, require_stable=True))[1] == "UNSTABLE_OFFSET_COMMIT"
        # Version 5 is the first of a client whose epoch rises with every transaction.
        assert await one.end(is_commit, 5 if version >= 5 else 3) == "NONE"
        await one.settled()
        assert await committed(orders, require_stable=True) == (offset if is_commit else before, "NONE")


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, "INVALID_TXN_STATE"),
        (1, "INVALID_TXN_STATE"),
        (2, "INVALID_TXN_STATE"),
        (3, "INVALID_TXN_STATE"),
        (4, "TRANSACTION_ABORTABLE"),
    ],
)
async def test_offsets_of_a_group_that_did_not_join_are_refused(orders: Any, version: int, code: str) -> None:
    one = await producer(orders)
    await groups_are_served(orders)
    assert await one.commit_offsets(5, version) == code
    await one.add(("orders", 0))
    assert await one.commit_offsets(5, version) == code
    assert await one.end(True) == "NONE"
    await one.settled()
    assert await committed(orders) == (-1, "NONE")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": "nobody", "generation_id": 1}, "ILLEGAL_GENERATION"),
        ({"group_id": ""}, "INVALID_GROUP_ID"),
        ({"topic": "nowhere"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
async def test_offsets_for_no_group_or_topic_are_refused(orders: Any, changes: dict[str, Any], code: str) -> None:
    one = await producer(orders)
    await groups_are_served(orders)
    for version in (3, 4, 5):
        if version < 5:
            assert await one.add_offsets(changes.get("group_id", "g")) == "NONE"
        assert await one.commit_offsets(5, version, **changes) == code
    assert (await committed(orders))[0] == -1


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_only_a_member_of_the_group_as_it_is_now_commits_its_offsets(orders: Any, version: int) -> None:
    one = await producer(orders)
    await groups_are_served(orders)
    join = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "group_instance_id": "static",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    joined = await orders.call(groups.handle_join_group, ApiKey.JOIN_GROUP, **join)
    assert joined.error_code == 0
    await orders.call(
        groups.handle_sync_group,
        ApiKey.SYNC_GROUP,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id="static",
        protocol_type="consumer",
        protocol_name="range",
    )
    now = {"member_id": joined.member_id, "generation_id": joined.generation_id, "group_instance_id": "static"}
    if version < 5:
        await one.add_offsets()
    refused = [
        await one.commit_offsets(5, version, **(now | changes))
        for changes in (
            {"generation_id": joined.generation_id + 1},
            {"member_id": "nobody", "group_instance_id": None},
            {"member_id": "nobody"},
            {"member_id": "", "generation_id": -1, "group_instance_id": None},
        )
    ]
    # The last says nothing of groups: it may, for clients older than KIP-447 say as little.
    assert refused == ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "NONE"]
    assert await one.commit_offsets(6, version, **now) == "NONE"


async def test_an_unknown_topic_leaves_the_offsets_of_the_others_alone(orders: Any) -> None:
    one = await producer(orders)
    await groups_are_served(orders)

    def of(topic: str, *indexes: int) -> dict[str, Any]:
        partitions = [
            {"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in indexes
        ]
        return {"name": topic, "partitions": partitions}

    topics = [of("nowhere", 0), of("orders", 0, 3, -1), of("orders")]
    answer = await orders.call(
        transactions.handle_txn_offset_commit, COMMIT_OFFSETS, 5, **one.identity, group_id="g", topics=topics
    )
    assert [
        (topic.name, [(one.partition_index, name(one.error_code)) for one in topic.partitions])
        for topic in answer.topics
    ] == [
        ("nowhere", [(0, "UNKNOWN_TOPIC_OR_PARTITION")]),
        ("orders", [(0, "NONE"), (3, "UNKNOWN_TOPIC_OR_PARTITION"), (-1, "UNKNOWN_TOPIC_OR_PARTITION")]),
        ("orders", []),
    ]
    # Nothing to commit: nothing joins either.
    two = await producer(orders, "two")
    for version in versions(COMMIT_OFFSETS):
        answer = await orders.call(
            transactions.handle_txn_offset_commit, COMMIT_OFFSETS, version, **two.identity, group_id="g", topics=[]
        )
        assert answer.topics == ()
    assert await two.state() == "Empty"


# Markers


async def write_markers(node: Any, version: int, *asked: dict[str, Any]) -> list[tuple[int, dict[Any, str]]]:
    answer = await node.call(transactions.handle_write_txn_markers, WRITE_MARKERS, version, markers=asked)
    return [
        (
            marker.producer_id,
            {
                (topic.name, partition.partition_index): name(partition.error_code)
                for topic in marker.topics
                for partition in topic.partitions
            },
        )
        for marker in answer.markers
    ]


def marker_of(one: Producer, *topics: tuple[str, list[int]], **changes: Any) -> dict[str, Any]:
    return {
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "transaction_result": False,
        "coordinator_epoch": 3,
        "topics": [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics],
        **changes,
    }


@pytest.mark.parametrize("version", versions(WRITE_MARKERS))
async def test_a_marker_ends_a_transaction_whose_coordinator_forgot_it(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    await one.produce()
    partition = orders.partition("orders")
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 1)
    answer = await write_markers(
        orders, version, marker_of(one, ("orders", [0, 0, 9]), ("nowhere", [0]), ("orders", [0]))
    )
    assert answer == [
        (
            one.producer_id,
            {
                ("orders", 0): "NONE",
                ("orders", 9): "UNKNOWN_TOPIC_OR_PARTITION",
                ("nowhere", 0): "UNKNOWN_TOPIC_OR_PARTITION",
            },
        )
    ]
    assert markers(orders, "orders") == [(ControlType.ABORT, 0)]
    assert partition.last_stable_offset == partition.high_watermark == 2


@pytest.mark.parametrize("version", versions(WRITE_MARKERS))
async def test_a_marker_of_the_past_is_refused(orders: Any, version: int) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    await one.produce()
    at = ("orders", [0])
    assert await write_markers(orders, version, marker_of(one, at, producer_epoch=4)) == [
        (one.producer_id, {("orders", 0): "NONE"})
    ]
    late = (
        (marker_of(one, at, producer_epoch=3), "INVALID_PRODUCER_EPOCH"),
        (marker_of(one, at, producer_epoch=4, coordinator_epoch=2), "TRANSACTION_COORDINATOR_FENCED"),
        (marker_of(one, at, producer_id=-1), "INVALID_REQUEST"),
        (marker_of(one, at, producer_epoch=-1), "INVALID_REQUEST"),
    )
    answer = await write_markers(orders, version, *(asked for asked, _ in late))
    assert [codes[("orders", 0)] for _, codes in answer] == [code for _, code in late]
    assert len(markers(orders, "orders")) == 1


async def test_a_marker_of_version_2_does_not_end_what_has_its_own_epoch(orders: Any) -> None:
    one = await producer(orders)
    await one.add(("orders", 0))
    await one.produce()
    (answer,) = await write_markers(orders, 2, marker_of(one, ("orders", [0]), transaction_version=2))
    assert answer[1] == {("orders", 0): "INVALID_PRODUCER_EPOCH"}
    assert orders.partition("orders").last_stable_offset == 0


@pytest.mark.parametrize("version", versions(WRITE_MARKERS))
async def test_a_marker_for_a_groups_offsets_reaches_the_group(orders: Any, version: int) -> None:
    one = await producer(orders)
    await groups_are_served(orders)
    await one.add_offsets()
    assert await one.commit_offsets(5) == "NONE"
    at = (GROUP_OFFSETS_TOPIC, [orders.context.groups.partition_of("g")])
    await write_markers(orders, version, marker_of(one, at, transaction_result=True))
    assert await committed(orders, require_stable=True) == (5, "NONE")


@pytest.mark.parametrize("version", versions(WRITE_MARKERS))
async def test_no_markers_are_no_trouble(orders: Any, version: int) -> None:
    one = await producer(orders)
    assert await write_markers(orders, version) == []
    assert await write_markers(orders, version, marker_of(one)) == [(one.producer_id, {})]


async def test_a_marker_is_waited_for_where_a_group_is_still_being_loaded(orders: Any) -> None:
    one = await producer(orders)
    await groups_are_served(orders)
    index = orders.context.groups.partition_of("g")
    orders.context.groups.resign(index)
    (answer,) = await write_markers(orders, 1, marker_of(one, (GROUP_OFFSETS_TOPIC, [index])))
    # Retried by coordinators, and never taken for a partition that is gone.
    assert answer[1] == {(GROUP_OFFSETS_TOPIC, index): "NOT_LEADER_OR_FOLLOWER"}
