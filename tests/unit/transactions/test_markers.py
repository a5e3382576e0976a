"""Markers on their way: sent again until every partition has one, and no more once another coordinator took over."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from penstock.errors import ErrorCode, NotLeaderOrFollower
from penstock.model import TopicPartition
from penstock.records.markers import ControlType, Marker
from penstock.transactions.markers import CoordinatorReplaced, MarkerToWrite, deliver, markers_of
from penstock.transactions.transaction import VERSION_2, State, Transaction

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def prepared(state: State) -> Transaction:
    return Transaction(7, 4, 60_000, state, 0, 0, frozenset({B, A}))


def test_a_marker_says_how_it_ends_who_it_is_for_and_who_sends_it() -> None:
    assert markers_of(prepared(State.PREPARE_COMMIT), 9) == [
        MarkerToWrite(A, Marker(ControlType.COMMIT, 9), 7, 4),
        MarkerToWrite(B, Marker(ControlType.COMMIT, 9), 7, 4),
    ]
    assert {m.marker.control_type for m in markers_of(prepared(State.PREPARE_ABORT), 9)} == {ControlType.ABORT}


def test_a_marker_with_a_new_epoch_says_that_it_has_one() -> None:
    version_2 = prepared(State.PREPARE_COMMIT)._replace(client_version=VERSION_2)
    assert [marker.is_version_2 for marker in markers_of(version_2, 9)] == [True, True]
    assert [marker.is_version_2 for marker in markers_of(prepared(State.PREPARE_COMMIT), 9)] == [False, False]


async def test_what_is_refused_is_sent_again_and_what_is_written_is_not(partitions: Any, clock: Any) -> None:
    partitions.codes[B] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR]
    await deliver(markers_of(prepared(State.PREPARE_COMMIT), 9), partitions.write, clock)
    assert [marker.partition for marker in partitions.written] == [A, B]


@pytest.mark.parametrize("failure", [NotLeaderOrFollower("gone"), KeyError("a bug")], ids=repr)
async def test_a_write_that_fails_as_a_whole_is_tried_again(partitions: Any, clock: Any, failure: Exception) -> None:
    failures = [failure, failure]

    async def write(markers: Sequence[MarkerToWrite]) -> dict[TopicPartition, ErrorCode]:
        if failures:
            raise failures.pop()
        return await partitions.write(markers)

    await deliver(markers_of(prepared(State.PREPARE_COMMIT), 9), write, clock)
    assert len(partitions.written) == 2


async def test_a_deleted_partition_does_not_hold_up_the_transaction(partitions: Any, clock: Any) -> None:
    partitions.codes[A] = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await deliver(markers_of(prepared(State.PREPARE_COMMIT), 9), partitions.write, clock)
    assert [marker.partition for marker in partitions.written] == [B]


async def test_a_partition_past_the_producers_epoch_does_not_hold_up_the_transaction(
    partitions: Any, clock: Any
) -> None:
    partitions.codes[A] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    await deliver(markers_of(prepared(State.PREPARE_ABORT), 9), partitions.write, clock)
    assert [marker.partition for marker in partitions.written] == [B]


async def test_a_coordinator_that_was_replaced_sends_nothing_more(partitions: Any, clock: Any) -> None:
    partitions.codes[B] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    with pytest.raises(CoordinatorReplaced):
        await deliver(markers_of(prepared(State.PREPARE_COMMIT), 9), partitions.write, clock)
    assert [marker.partition for marker in partitions.written] == [A]


async def test_waits_between_tries_grow_to_a_second(partitions: Any, clock: Any) -> None:
    times: list[float] = []

    async def write(markers: Sequence[MarkerToWrite]) -> dict[TopicPartition, ErrorCode]:
        times.append(clock.monotonic())
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if len(times) < 9 else ErrorCode.NONE
        return {marker.partition: code for marker in markers}

    await deliver(markers_of(prepared(State.PREPARE_COMMIT), 9), write, clock)
    waits = [round(after - before, 2) for before, after in pairwise(times)]
    assert waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
