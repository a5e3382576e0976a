"""A transaction that was decided before the broker died ends as it was decided; one that was not stays open."""

from typing import Any

import pytest

from penstock.errors import CoordinatorLoadInProgress, ErrorCode
from penstock.records.record import Record, encode_batch
from penstock.testing import EmbeddedBroker
from penstock.wire.apis import ApiKey


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_what_was_decided_is_carried_out_after_a_crash(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, inside: Any, version: int, is_commit: bool
) -> None:
    create(penstock_broker, "orders", 2)
    given, identity = open_transaction(connect(penstock_broker))
    ended = connect(penstock_broker).ask(ApiKey.END_TXN, version, **identity, committed=is_commit)
    assert ended.error_code == 0
    penstock_broker.crash_and_restart()
    look = inside(penstock_broker)
    for index in range(2):
        at = ("orders", index)
        look.until(lambda at=at: is_ended(penstock_broker, at))
        ((_, fence),) = look.read(
            lambda at=at: [
                (one.producer_id, one.producer_epoch)
                for one in penstock_broker.broker.replicas.find(*at).log.producer_states()
            ]
        )
        assert fence == given.producer_epoch + (version >= 5)
        aborted = look.read(lambda at=at: penstock_broker.broker.replicas.find(*at).log.aborted_transactions(0, 2))
        assert len(aborted) == (0 if is_commit else 1)
    wire = connect(penstock_broker)
    look.until(lambda: state(penstock_broker) == ("CompleteCommit" if is_commit else "CompleteAbort"))
    # Told so, too, whoever did not hear it before the crash.
    assert wire.ask(ApiKey.END_TXN, version, **identity, committed=is_commit).error_code == 0


def test_what_was_not_decided_is_still_open_after_a_crash(
    penstock_broker: EmbeddedBroker, connect: Any, create: Any, inside: Any
) -> None:
    create(penstock_broker, "orders", 2)
    _, identity = open_transaction(connect(penstock_broker))
    penstock_broker.crash_and_restart()
    look = inside(penstock_broker)
    assert look.read(lambda: stable(penstock_broker, ("orders", 0))) == (0, 1)
    wire = connect(penstock_broker)
    while (answer := wire.ask(ApiKey.END_TXN, 3, **identity, committed=True)).error_code:
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    look.until(lambda: is_ended(penstock_broker, ("orders", 0)))


def open_transaction(wire: Any) -> tuple[Any, dict[str, Any]]:
    """A record in each of two partitions, and nothing ended."""
    wire.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=["t"])
    while (given := wire.ask(ApiKey.INIT_PRODUCER_ID, transactional_id="t", transaction_timeout=60_000)).error_code:
        assert given.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    records = encode_batch(
        [Record(0, 1_700_000_000_000, b"key", b"value")],
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    partitions = [{"index": index, "records": bytes(records)} for index in range(2)]
    answer = wire.ask(
        ApiKey.PRODUCE,
        12,
        transactional_id="t",
        acks=-1,
        timeout=30_000,
        topic_data=[{"name": "orders", "partition_data": partitions}],
    )
    assert [one.error_code for one in answer.responses[0].partition_responses] == [0, 0]
    identity = {
        "transactional_id": "t",
        "producer_id": given.producer_id,
        "producer_epoch": given.producer_epoch,
    }
    return given, identity


def stable(broker: EmbeddedBroker, at: tuple[str, int]) -> tuple[int, int]:
    partition = broker.broker.replicas.find(*at)
    return partition.last_stable_offset, partition.high_watermark


def is_ended(broker: EmbeddedBroker, at: tuple[str, int]) -> bool:
    """A marker stands behind the record; twice, if it was sent before the crash and nobody could know."""
    last_stable_offset, high_watermark = stable(broker, at)
    return last_stable_offset == high_watermark >= 2


def state(broker: EmbeddedBroker) -> str:
    try:
        return broker.broker.transactions.describe("t").state
    except CoordinatorLoadInProgress:
        return "not loaded yet"
