"""A transactional producer's steps at its coordinator, for the tests of it, and what lies in its log after them."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.errors import ErrorCode
from penstock.model import TopicPartition
from penstock.records.batch import read_header
from penstock.records.record import Record, decode_records, encode_batch
from penstock.transactions.coordinator import ProducerGrant, TransactionCoordinator
from penstock.transactions.transaction import State, Transaction
from penstock.transactions.transaction_records import TransactionRecord, decode_record, encode_record

Make = Callable[[], TransactionCoordinator]

TIMEOUT_MS = 60_000
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


async def opened_as(coordinator: TransactionCoordinator, grant: ProducerGrant) -> ErrorCode:
    return await coordinator.add_partitions("pay", grant.producer_id, grant.producer_epoch, {A})


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


def seed(ledger: Any, name: str, transaction: Transaction) -> None:
    key, value = encode_record(TransactionRecord(name, transaction))
    ledger.append(encode_batch([Record(0, 1, key, value)]))


async def restarted(make_coordinator: Make, ledger: Any, old: TransactionCoordinator) -> TransactionCoordinator:
    old.close()
    ledger.held, ledger.refusal = None, None
    ledger.leader_epoch += 1
    coordinator = make_coordinator()
    await coordinator.lead(ledger)
    return coordinator
