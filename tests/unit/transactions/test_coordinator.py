"""The coordinator whole: real shards on a ledger in memory, in virtual time."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
    TransactionalIdNotFound,
)
from penstock.model import TopicPartition
from penstock.records.batch import read_header
from penstock.records.markers import ControlType
from penstock.records.record import Record, decode_records, encode_batch
from penstock.transactions.coordinator import ProducerGrant, TransactionCoordinator
from penstock.transactions.transaction import EPOCH_MAX, LAST_USABLE_EPOCH, State, Transaction
from penstock.transactions.transaction_records import TransactionRecord, decode_record, encode_record

Make = Callable[[], TransactionCoordinator]

TIMEOUT_MS = 60_000
DAY_S = 86_400
A, B = TopicPartition("a", 0), TopicPartition("b", 1)
OK = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED


async def begin(coordinator: TransactionCoordinator, name: str = "pay") -> ProducerGrant:
    grant = await coordinator.init_producer_id(name, TIMEOUT_MS)
    assert grant.error is OK
    return grant


async def opened(coordinator: TransactionCoordinator, name: str = "pay") -> ProducerGrant:
    grant = await begin(coordinator, name)
    assert await coordinator.add_partitions(name, grant.producer_id, grant.producer_epoch, {A, B}) is OK
    return grant


async def end(
    coordinator: TransactionCoordinator, grant: ProducerGrant, is_commit: bool = True, version: int = 2
) -> ProducerGrant:
    producer = (grant.producer_id, grant.producer_epoch)
    return await coordinator.end("pay", *producer, is_commit=is_commit, is_version_2=version == 2)


async def settled(coordinator: TransactionCoordinator, name: str = "pay") -> str:
    """The state after so much virtual time that no marker can be on its way."""
    await asyncio.sleep(3)
    return coordinator.describe(name).state


def states(ledger: Any) -> list[State | None]:
    """Of every record in the log."""
    found: list[State | None] = []
    for batch in ledger.batches:
        for record in decode_records(batch, read_header(batch), 1 << 20):
            assert record.key is not None
            decoded = decode_record(record.key, record.value)
            assert decoded is not None
            found.append(None if decoded.transaction is None else decoded.transaction.state)
    return found


async def restarted(make_coordinator: Make, ledger: Any, old: TransactionCoordinator) -> TransactionCoordinator:
    old.close()
    ledger.held, ledger.refusal = None, None
    ledger.leader_epoch += 1
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    return coordinator


# One transaction


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_ends_in_every_partition_with_the_new_epoch(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any, is_commit: bool
) -> None:
    grant = await opened(coordinator)
    assert await end(coordinator, grant, is_commit) == (OK, grant.producer_id, grant.producer_epoch + 1)
    await settled(coordinator)
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    assert [(m.partition, m.marker, m.producer_id, m.producer_epoch) for m in partitions.written] == [
        (at, (kind, ledger.leader_epoch), grant.producer_id, grant.producer_epoch + 1) for at in (A, B)
    ]
    assert (coordinator.committed, coordinator.aborted, coordinator.open_count()) == (is_commit, not is_commit, 0)


async def test_a_transaction_of_one_message_costs_three_records_after_its_producer_is_known(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await begin(coordinator)
    before = len(ledger.batches)
    await coordinator.add_partitions("pay", grant.producer_id, grant.producer_epoch, {A})
    await end(coordinator, grant)
    await settled(coordinator)
    assert states(ledger)[before:] == [State.ONGOING, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


async def test_version_1_keeps_the_epoch_and_hears_a_repeated_end(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    assert (await end(coordinator, grant, version=1)) == (OK, grant.producer_id, grant.producer_epoch)
    await settled(coordinator)
    assert {marker.producer_epoch for marker in partitions.written} == {grant.producer_epoch}
    assert (await end(coordinator, grant, version=1)).error is OK
    assert (await end(coordinator, grant, is_commit=False, version=1)).error is ErrorCode.INVALID_TXN_STATE
    assert len(partitions.written) == 2


async def test_the_end_is_answered_before_the_markers_and_all_else_waits_for_them(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    assert next_grant.error is OK
    producer = (next_grant.producer_id, next_grant.producer_epoch)
    assert coordinator.describe("pay").state == "PrepareCommit"
    assert (await end(coordinator, grant)).error is BUSY
    assert (await end(coordinator, grant, is_commit=False)).error is BUSY
    assert (await coordinator.init_producer_id("pay", TIMEOUT_MS)).error is BUSY
    assert coordinator.verify_partitions("pay", *producer, [A]) == {A: BUSY}
    assert await coordinator.add_partitions("pay", *producer, {A}) is BUSY
    partitions.gate.set()
    assert await settled(coordinator) == "CompleteCommit"
    assert (await end(coordinator, grant)) == next_grant
    assert (await end(coordinator, grant, is_commit=False)).error is ErrorCode.INVALID_TXN_STATE


async def test_the_next_transaction_waits_a_little_for_the_markers_instead_of_being_sent_away(
    coordinator: TransactionCoordinator, partitions: Any, ledger: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    _, *producer = await end(coordinator, grant)
    asyncio.get_running_loop().call_later(0.09, partitions.gate.set)
    first = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    second = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {B}))
    assert [await first, await second] == [OK, OK]
    assert coordinator.describe("pay").partitions == (A, B)
    # Complete and ongoing are one batch, hence one fsync.
    assert states(ledger)[-3:] == [State.PREPARE_COMMIT, State.COMPLETE_COMMIT, State.ONGOING]
    assert read_header(ledger.batches[-1]).record_count == 2
    assert (coordinator.committed, coordinator.open_count()) == (1, 1)


async def test_a_zombie_that_waited_for_the_markers_is_fenced_with_the_next_transaction(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    _, *producer = await end(coordinator, grant)
    asyncio.get_running_loop().call_later(0.05, partitions.gate.set)
    zombie = asyncio.ensure_future(opened_as(coordinator, grant))
    owner = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    assert [await zombie, await owner] == [FENCED, OK]


async def test_who_waits_for_a_record_on_its_way_is_answered_when_it_is_there(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await begin(coordinator)
    ledger.held = []
    producer = (grant.producer_id, grant.producer_epoch)
    first = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    second = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {B}))
    asyncio.get_running_loop().call_later(0.05, ledger.release)
    assert [await first, await second] == [OK, OK]
    assert coordinator.describe("pay").partitions == (A, B)


async def test_a_next_transaction_that_comes_with_a_refused_completion_is_told_and_may_come_again(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    ledger.refusal = NotEnoughReplicas("too few")
    waiting = asyncio.ensure_future(opened_as(coordinator, next_grant))
    await asyncio.sleep(0)
    partitions.gate.set()
    with pytest.raises(CoordinatorNotAvailable):
        await waiting
    assert coordinator.describe("pay").state == "PrepareCommit"
    ledger.refusal = None
    assert await settled(coordinator) == "CompleteCommit"
    assert await opened_as(coordinator, next_grant) is OK


async def test_a_next_transaction_on_its_way_to_the_log_is_not_sent_away_by_the_clock(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    waiting = asyncio.ensure_future(opened_as(coordinator, next_grant))
    await asyncio.sleep(0)
    ledger.held = []
    partitions.gate.set()
    await asyncio.sleep(1)
    assert not waiting.done()
    ledger.release()
    assert await waiting is OK


async def test_one_that_came_before_the_end_was_written_waits_for_its_markers_too(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await opened(coordinator)
    ledger.held = []
    ending = asyncio.ensure_future(end(coordinator, grant, version=1))
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(opened_as(coordinator, grant))
    await asyncio.sleep(0)
    ledger.release()
    assert (await ending).error is OK
    assert await waiting is OK
    assert read_header(ledger.batches[-1]).record_count == 2


async def test_one_that_hung_up_while_it_waited_begins_nothing(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    next_grant = await end(coordinator, grant)
    waiting = asyncio.ensure_future(opened_as(coordinator, next_grant))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    partitions.gate.set()
    assert await settled(coordinator) == "CompleteCommit"


async def test_who_waits_for_markers_is_told_when_the_partition_is_led_elsewhere(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    _, *producer = await end(coordinator, grant)
    waiting = asyncio.ensure_future(coordinator.add_partitions("pay", *producer, {A}))
    await asyncio.sleep(0)
    coordinator.resign(0)
    with pytest.raises(NotCoordinator):
        await waiting


async def test_transactions_of_one_turn_share_a_batch(coordinator: TransactionCoordinator, ledger: Any) -> None:
    names = [f"pay-{i}" for i in range(20)]
    grants = [await begin(coordinator, name) for name in names]
    before = len(ledger.batches)
    codes = await asyncio.gather(
        *(
            coordinator.add_partitions(name, grant.producer_id, grant.producer_epoch, {A})
            for name, grant in zip(names, grants, strict=True)
        )
    )
    assert codes == [OK] * 20
    assert len(ledger.batches) == before + 1


async def test_an_empty_abort_of_version_2_gives_the_next_epoch_and_writes_no_marker(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    grant = await begin(coordinator)
    assert await end(coordinator, grant, is_commit=False) == (OK, grant.producer_id, grant.producer_epoch + 1)
    assert await settled(coordinator) == "CompleteAbort"
    assert partitions.written == []


# Who may speak


async def test_a_second_producer_aborts_what_the_first_has_open_and_fences_it(
    coordinator: TransactionCoordinator, partitions: Any
) -> None:
    zombie = await opened(coordinator)
    assert await coordinator.init_producer_id("pay", TIMEOUT_MS) == (BUSY, -1, -1)
    assert await settled(coordinator) == "CompleteAbort"
    assert {marker.marker.control_type for marker in partitions.written} == {ControlType.ABORT}
    owner = await begin(coordinator)
    assert owner.producer_epoch == zombie.producer_epoch + 3
    for version in (1, 2):
        assert (await end(coordinator, zombie, version=version)).error is FENCED
    producer = (zombie.producer_id, zombie.producer_epoch)
    assert await coordinator.add_partitions("pay", *producer, {A}) is FENCED
    assert coordinator.verify_partitions("pay", *producer, [A]) == {A: FENCED}
    assert (await coordinator.init_producer_id("pay", TIMEOUT_MS, *producer)).error is FENCED
    assert (await opened_as(coordinator, owner)) is OK


async def opened_as(coordinator: TransactionCoordinator, grant: ProducerGrant) -> ErrorCode:
    return await coordinator.add_partitions("pay", grant.producer_id, grant.producer_epoch, {A})


async def test_a_zombie_that_asks_for_its_old_id_does_not_abort_its_successors_transaction(
    coordinator: TransactionCoordinator,
) -> None:
    zombie = await begin(coordinator)
    owner = await opened(coordinator)
    grant = await coordinator.init_producer_id("pay", TIMEOUT_MS, zombie.producer_id, zombie.producer_epoch)
    assert grant.error is FENCED
    assert (await end(coordinator, owner)).error is OK


async def test_two_that_start_at_once_get_one_answer_and_one_is_sent_away(
    coordinator: TransactionCoordinator, producer_ids: Any
) -> None:
    grants = await asyncio.gather(*(coordinator.init_producer_id("pay", TIMEOUT_MS) for _ in range(2)))
    assert sorted(grant.error for grant in grants) == [OK, BUSY]


async def test_requests_that_race_with_a_record_on_its_way_are_sent_away(
    coordinator: TransactionCoordinator, ledger: Any
) -> None:
    grant = await opened(coordinator)
    ledger.held = []
    first = asyncio.ensure_future(end(coordinator, grant))
    await asyncio.sleep(0)
    assert (await end(coordinator, grant, is_commit=False)).error is BUSY
    assert (await end(coordinator, grant, is_commit=False, version=1)).error is BUSY
    assert (await coordinator.init_producer_id("pay", TIMEOUT_MS)).error is BUSY
    assert await opened_as(coordinator, grant) is BUSY
    zombie = grant._replace(producer_epoch=grant.producer_epoch - 1)
    assert (await end(coordinator, zombie, version=1)).error is FENCED
    assert coordinator.describe("pay").state == "Ongoing"
    ledger.release()
    assert (await first).error is OK
    assert await settled(coordinator) == "CompleteCommit"


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer", "code"),
    [
        ("", TIMEOUT_MS, (-1, -1), ErrorCode.INVALID_REQUEST),
        ("pay", TIMEOUT_MS, (5, -1), ErrorCode.INVALID_REQUEST),
        ("pay", TIMEOUT_MS, (-1, 5), ErrorCode.INVALID_REQUEST),
        ("pay", 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("pay", -1, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("pay", 900_001, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("pay", 900_000, (-1, -1), OK),
        ("pay", 1, (5, 5), OK),
    ],
)
async def test_what_a_producer_asks_for_is_checked(
    coordinator: TransactionCoordinator, name: str, timeout_ms: int, producer: tuple[int, int], code: ErrorCode
) -> None:
    assert (await coordinator.init_producer_id(name, timeout_ms, *producer)).error is code


async def test_an_unknown_id_and_an_empty_one_are_told_apart(coordinator: TransactionCoordinator) -> None:
    mapping, request = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST
    for name, code in (("pay", mapping), ("", request)):
        assert await coordinator.add_partitions(name, 5, 0, {A}) is code
        assert coordinator.verify_partitions(name, 5, 0, [A]) == {A: code}
        for is_version_2 in (True, False):
            assert (await coordinator.end(name, 5, 0, is_commit=True, is_version_2=is_version_2)).error is code
    with pytest.raises(InvalidRequest):
        coordinator.describe("")
    with pytest.raises(TransactionalIdNotFound):
        coordinator.describe("pay")


async def test_a_producer_is_told_to_retry_when_there_are_no_producer_ids(
    coordinator: TransactionCoordinator, producer_ids: Any
) -> None:
    producer_ids.refusal = RequestTimedOut("the metadata store is slow")
    grant = await coordinator.init_producer_id("pay", TIMEOUT_MS)
    assert grant.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("is_first_end_lost", [False, True])
async def test_after_its_last_epoch_a_producer_goes_on_with_a_new_id(
    make_coordinator: Make, ledger: Any, partitions: Any, producer_ids: Any, is_first_end_lost: bool
) -> None:
    last = Transaction(7, LAST_USABLE_EPOCH, TIMEOUT_MS, State.ONGOING, 1, 1, frozenset({A}), 7)
    seed(ledger, "pay", last)
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = ProducerGrant(OK, 7, LAST_USABLE_EPOCH)
    partitions.gate.clear()
    after = await end(coordinator, grant)
    assert after == (OK, producer_ids.next - 1, 0)
    if is_first_end_lost:
        coordinator = await restarted(make_coordinator, ledger, coordinator)
    partitions.gate.set()
    await settled(coordinator)
    assert [(m.producer_id, m.producer_epoch) for m in partitions.written] == [(7, EPOCH_MAX)]
    assert await end(coordinator, grant) == after
    assert await opened_as(coordinator, after) is OK
    coordinator.close()


def seed(ledger: Any, name: str, transaction: Transaction) -> None:
    key, value = encode_record(TransactionRecord(name, transaction))
    ledger.append(encode_batch([Record(0, 1, key, value)]))


# A log that is slow, refuses or is lost


async def test_a_refused_record_leaves_everything_as_it_was(coordinator: TransactionCoordinator, ledger: Any) -> None:
    grant = await opened(coordinator)
    ledger.refusal = NotEnoughReplicas("too few")
    with pytest.raises(CoordinatorNotAvailable):
        await end(coordinator, grant)
    with pytest.raises(CoordinatorNotAvailable):
        await coordinator.init_producer_id("pay", TIMEOUT_MS)
    assert coordinator.describe("pay")[1:4] == (grant.producer_id, grant.producer_epoch, "Ongoing")
    ledger.refusal = None
    assert (await end(coordinator, grant)).error is OK


async def test_a_completion_that_is_refused_is_tried_until_it_is_written(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    await end(coordinator, grant)
    ledger.refusal = NotEnoughReplicas("too few")
    partitions.gate.set()
    await asyncio.sleep(5)
    assert coordinator.describe("pay").state == "PrepareCommit"
    ledger.refusal = None
    assert await settled(coordinator) == "CompleteCommit"
    assert (len(partitions.written), states(ledger).count(State.COMPLETE_COMMIT)) == (2, 1)


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
async def test_a_completion_that_commits_late_is_written_once(
    coordinator: TransactionCoordinator, ledger: Any, partitions: Any
) -> None:
    grant = await opened(coordinator)
    partitions.gate.clear()
    await end(coordinator, grant)
    ledger.held = []
    partitions.gate.set()
    await asyncio.sleep(60)
    gc.collect()  # a task that died would say so now
    ledger.release()
    assert await settled(coordinator) == "CompleteCommit"
    assert states(ledger).count(State.COMPLETE_COMMIT) == 1


async def test_a_lost_partition_is_no_longer_served(coordinator: TransactionCoordinator, ledger: Any) -> None:
    grant = await opened(coordinator)
    ledger.held = []
    ending = asyncio.ensure_future(end(coordinator, grant))
    await asyncio.sleep(0.001)
    ledger.held[0].set_exception(NotLeaderOrFollower("elsewhere"))
    with pytest.raises(NotCoordinator):
        await ending
    with pytest.raises(NotCoordinator):
        coordinator.describe("pay")
    assert coordinator.list_transactions() == []


async def test_nothing_is_served_before_it_is_loaded(make_coordinator: Make, ledger: Any) -> None:
    seed(ledger, "pay", Transaction(7, 0, TIMEOUT_MS, State.EMPTY, 1))
    coordinator = make_coordinator()
    with pytest.raises(NotCoordinator):
        await coordinator.init_producer_id("pay", TIMEOUT_MS)
    loading = asyncio.ensure_future(coordinator.lead(ledger))
    await asyncio.sleep(0)
    with pytest.raises(CoordinatorLoadInProgress):
        await coordinator.init_producer_id("pay", TIMEOUT_MS)
    with pytest.raises(CoordinatorLoadInProgress):
        coordinator.list_transactions()
    await loading
    assert (await begin(coordinator)).producer_epoch == 1
    coordinator.close()


# Crashes


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_crash_before_the_markers_ends_the_transaction_the_same_way(
    make_coordinator: Make, ledger: Any, partitions: Any, is_commit: bool
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    partitions.gate.clear()
    after = await end(coordinator, grant, is_commit)
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert partitions.written == []
    partitions.gate.set()
    assert await settled(coordinator) == ("CompleteCommit" if is_commit else "CompleteAbort")
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    assert [(m.partition, m.marker) for m in partitions.written] == [(at, (kind, ledger.leader_epoch)) for at in (A, B)]
    # The answer was lost with the broker: the producer asks again, with the epoch it knows.
    assert await end(coordinator, grant, is_commit) == after
    assert await opened_as(coordinator, after) is OK
    coordinator.close()


async def test_a_crash_between_the_markers_writes_the_rest(
    make_coordinator: Make, ledger: Any, partitions: Any
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    partitions.codes[B] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000
    await end(coordinator, grant)
    await asyncio.sleep(3)
    assert [marker.partition for marker in partitions.written] == [A]
    partitions.codes.clear()
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert await settled(coordinator) == "CompleteCommit"
    assert [marker.partition for marker in partitions.written[1:]] == [A, B]
    coordinator.close()


async def test_a_crash_after_the_markers_completes_the_transaction(
    make_coordinator: Make, ledger: Any, partitions: Any
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    partitions.gate.clear()
    after = await end(coordinator, grant)
    ledger.refusal = NotEnoughReplicas("too few")
    partitions.gate.set()
    await asyncio.sleep(1)
    assert len(partitions.written) == 2
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert await settled(coordinator) == "CompleteCommit"
    assert await end(coordinator, grant) == after
    coordinator.close()


async def test_a_coordinator_that_resigned_writes_no_more_markers(
    coordinator: TransactionCoordinator, partitions: Any, ledger: Any
) -> None:
    grant = await opened(coordinator)
    partitions.codes[A] = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    await end(coordinator, grant)
    coordinator.resign(0)
    await asyncio.sleep(10)
    assert [marker.partition for marker in partitions.written] in ([], [B])
    assert State.COMPLETE_COMMIT not in states(ledger)


async def test_a_coordinator_that_was_replaced_leaves_the_completion_to_its_successor(
    coordinator: TransactionCoordinator, partitions: Any, ledger: Any
) -> None:
    grant = await opened(coordinator)
    partitions.codes[A] = [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    await end(coordinator, grant)
    await asyncio.sleep(60)
    assert states(ledger)[-1] is State.PREPARE_COMMIT


async def test_a_restarted_coordinator_serves_an_open_transaction_as_before(
    make_coordinator: Make, ledger: Any
) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    grant = await opened(coordinator)
    before = coordinator.describe("pay")
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    assert coordinator.describe("pay") == before
    producer = (grant.producer_id, grant.producer_epoch)
    assert coordinator.verify_partitions("pay", *producer, [A, B]) == {A: OK, B: OK}
    assert (await end(coordinator, grant)).error is OK
    coordinator.close()


# Time


async def test_a_transaction_whose_time_is_up_is_aborted_and_its_producer_fenced(
    coordinator: TransactionCoordinator, partitions: Any, clock: Any
) -> None:
    grant = await opened(coordinator)
    assert coordinator.oldest_open_since_ms() == coordinator.describe("pay").started_ms
    await asyncio.sleep(TIMEOUT_MS / 1000 - 1)
    assert coordinator.describe("pay").state == "Ongoing"
    await asyncio.sleep(12)
    assert coordinator.describe("pay").state == "CompleteAbort"
    assert {m.producer_epoch for m in partitions.written} == {grant.producer_epoch + 2}
    assert (coordinator.timed_out, coordinator.aborted, coordinator.open_count()) == (1, 1, 0)
    assert coordinator.oldest_open_since_ms() is None
    for version in (1, 2):
        assert (await end(coordinator, grant, version=version)).error is FENCED


async def test_the_time_of_a_transaction_goes_on_over_a_restart(make_coordinator: Make, ledger: Any) -> None:
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    await opened(coordinator)
    await asyncio.sleep(TIMEOUT_MS / 1000 - 5)
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    await asyncio.sleep(11)
    assert coordinator.describe("pay").state == "CompleteAbort"
    coordinator.close()


async def test_a_time_out_that_the_log_refuses_is_tried_again(coordinator: TransactionCoordinator, ledger: Any) -> None:
    await opened(coordinator)
    ledger.refusal = NotEnoughReplicas("too few")
    await asyncio.sleep(100)
    assert (coordinator.describe("pay").state, coordinator.timed_out) == ("Ongoing", 0)
    ledger.refusal = None
    await asyncio.sleep(11)
    assert (coordinator.describe("pay").state, coordinator.timed_out) == ("CompleteAbort", 1)


async def test_an_idle_id_is_forgotten_with_a_tombstone_and_an_open_one_is_not(
    make_coordinator: Make, ledger: Any, settings: dict[str, str]
) -> None:
    settings["transaction.max.timeout.ms"] = str(2**31 - 1)
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    idle = await begin(coordinator, "idle")
    open_grant = await coordinator.init_producer_id("open", 2**31 - 2)
    await coordinator.add_partitions("open", open_grant.producer_id, open_grant.producer_epoch, {A})
    await asyncio.sleep(7 * DAY_S - 3_700)
    assert coordinator.describe("idle").state == "Empty"
    await asyncio.sleep(2 * 3_700)
    with pytest.raises(TransactionalIdNotFound):
        coordinator.describe("idle")
    assert coordinator.describe("open").state == "Ongoing"
    assert states(ledger)[-1] is None
    coordinator = await restarted(make_coordinator, ledger, coordinator)
    # Its producer comes back after all, and starts anew.
    grant = await coordinator.init_producer_id("idle", TIMEOUT_MS, idle.producer_id, idle.producer_epoch)
    assert grant.error is OK
    assert (grant.producer_id != idle.producer_id, grant.producer_epoch) == (True, 0)
    coordinator.close()


# Operators


async def test_an_operator_sees_what_is_open(coordinator: TransactionCoordinator, clock: Any) -> None:
    grant = await opened(coordinator)
    started_ms = clock.now_ms()
    assert coordinator.describe("pay") == (
        "pay", grant.producer_id, grant.producer_epoch, "Ongoing", TIMEOUT_MS, started_ms, (A, B),
    )  # fmt: skip


async def test_transactions_are_listed_by_every_filter(coordinator: TransactionCoordinator) -> None:
    pay = await opened(coordinator, "pay")
    await asyncio.sleep(5)
    await opened(coordinator, "ship")
    await begin(coordinator, "idle")

    def names(**filters: Any) -> set[str]:
        return {listed.transactional_id for listed in coordinator.list_transactions(**filters)}

    assert names() == {"pay", "ship", "idle"}
    assert names(producer_ids=[pay.producer_id]) == {"pay"}
    assert names(states=["Ongoing"]) == {"pay", "ship"}
    assert names(states=["Ongoing"], duration_ms=4_000) == {"pay"}
    assert names(states=["Ongoing"], duration_ms=0) == {"pay"}
    assert names(matches=lambda name: name.startswith("s")) == {"ship"}
    assert coordinator.open_count() == 2


async def test_an_id_is_kept_where_a_kafka_tool_looks_for_it(make_coordinator: Make, settings: dict[str, str]) -> None:
    settings["transaction.state.log.num.partitions"] = "50"
    coordinator = make_coordinator()
    # By Java: Math.abs("...".hashCode()) % 50; the last is the one whose hash has no absolute value.
    assert [coordinator.partition_of(name) for name in ("pay", "", "polygenelubricants")] == [10, 0, 0]
