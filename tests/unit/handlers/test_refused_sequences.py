"""A gap that a refusal of our own has left is no reason for a producer to begin anew."""

from typing import Any

import pytest
from tests.unit.handlers.test_produce import batch, code
from tests.unit.log.making import make_batch

from penstock.errors import ErrorCode, NotEnoughReplicas
from penstock.replication import refused_sequences
from penstock.replication.partition import Partition
from penstock.replication.refused_sequences import KEPT_S, PRODUCERS_MAX, SEQUENCES_MAX, RefusedSequences


def header(sequence: int, producer: int = 4) -> Any:
    return make_batch("a", producer=producer, sequence=sequence)[1]


def numbered(sequence: int) -> bytearray:
    return batch(producer_id=1, producer_epoch=0, base_sequence=sequence)


def test_only_the_batch_that_is_missing_explains_a_gap_and_only_for_a_while() -> None:
    refused = RefusedSequences()
    refused.note(header(7), 100.0)
    assert refused.explain(header(9), 7, 100.0 + KEPT_S)
    assert not refused.explain(header(9), 7, 100.1 + KEPT_S), "the client has given it up"
    assert not refused.explain(header(9), 8, 100.0)
    assert not refused.explain(header(9, producer=5), 7, 100.0)
    refused.note(header(7), 120.0)
    assert refused.explain(header(9), 7, 121.0)


def test_what_is_remembered_is_bounded() -> None:
    refused = RefusedSequences()
    for sequence in range(SEQUENCES_MAX + 1):
        refused.note(header(sequence), 1.0)
    assert not refused.explain(header(50), 0, 1.0)
    assert refused.explain(header(50), SEQUENCES_MAX, 1.0)
    for producer in range(10, 10 + PRODUCERS_MAX):
        refused.note(header(0, producer), 1.0)
    assert not refused.explain(header(50), SEQUENCES_MAX, 1.0), "the one refused longest ago had to go"
    assert refused.explain(header(1, producer=10), 0, 1.0)


async def test_who_comes_behind_a_refused_batch_is_asked_to_send_both_again(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")
    assert await code(node, numbered(0), acks=-1) is ErrorCode.NONE

    def refuse(_: Partition) -> None:
        raise NotEnoughReplicas("only one is in sync")

    with monkeypatch.context() as few:
        few.setattr(Partition, "check_in_sync", refuse)
        assert await code(node, numbered(1), acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    # Enough are in sync again, and what was sent behind it comes in.
    for sequence in (2, 3):
        assert await code(node, numbered(sequence), acks=-1) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert node.partition("orders").log.next_offset == 1
    for sequence in (1, 2, 3):
        assert await code(node, numbered(sequence), acks=-1) is ErrorCode.NONE
    assert await code(node, numbered(5), acks=-1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_batch_that_nobody_sends_again_is_waited_for_no_longer(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("orders")
    assert await code(node, numbered(0)) is ErrorCode.NONE
    partition = node.partition("orders")
    partition.is_leader = False
    assert await code(node, numbered(1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.is_leader = True
    assert await code(node, numbered(2)) is ErrorCode.NOT_ENOUGH_REPLICAS
    monkeypatch.setattr(refused_sequences, "KEPT_S", -1.0)
    assert await code(node, numbered(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
