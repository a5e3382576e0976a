"""Money goes to and fro between six accounts and a tenth of the transfers is given up: none is ever made or lost."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing.plugin import BrokerFactory

TOPIC = "accounts"  # a partition for each
ACCOUNTS = 6
WRITERS = 3
TRANSFERS = 60  # of each writer
ABORTED_SHARE = 0.1
OPENING_BALANCE = 1000
CALL_S = 30.0
DEADLINE_S = 90.0
QUICK = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}


class Transfer(NamedTuple):
    """Legs of a transaction by account, as one message says them: its own name, how many legs there are, an amount."""

    name: str
    amounts: dict[int, int]

    def messages(self) -> dict[int, bytes]:
        return {
            account: json.dumps([self.name, len(self.amounts), amount]).encode()
            for account, amount in self.amounts.items()
        }


class Writer(threading.Thread):
    """Makes transfers of its own, each one transaction, and remembers how each ended."""

    def __init__(self, bootstrap: str, number: int, seed: int) -> None:
        super().__init__(name=f"writer-{number}")
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        self.failure: BaseException | None = None
        self._chance = random.Random(f"{seed} {number}")
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": self.name, "linger.ms": 0, **QUICK}
        )

    def run(self) -> None:
        try:
            insist(lambda: self.producer.init_transactions(CALL_S))
            for serial in range(TRANSFERS):
                self._make(serial)
        except BaseException as error:
            self.failure = error

    def transfer(self, transfer: Transfer, *, is_commit: bool) -> bool:
        """True if it ended as it was meant to; False if it had to be given up on the way."""
        self.producer.begin_transaction()
        try:
            for account, message in transfer.messages().items():
                self.producer.produce(TOPIC, message, partition=account)
            assert self.producer.flush(CALL_S) == 0
            if is_commit:
                insist(lambda: self.producer.commit_transaction(CALL_S))
                self.committed.add(transfer.name)
                return True
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        insist(lambda: self.producer.abort_transaction(CALL_S))
        self.aborted.add(transfer.name)
        return not is_commit

    def _make(self, serial: int) -> None:
        source, target = self._chance.sample(range(ACCOUNTS), 2)
        amount = self._chance.randint(1, 100)
        is_commit = self._chance.random() >= ABORTED_SHARE
        attempt = 0
        # A new name for each attempt: one that was given up must not be taken for the one that was made.
        while not self.transfer(
            Transfer(f"{self.name}-{serial}-{attempt}", {source: -amount, target: amount}), is_commit=is_commit
        ):
            attempt += 1


class Auditor:
    """A reader of committed records; at every moment when it has read no transfer by half, the sum must be right."""

    def __init__(self, bootstrap: str) -> None:
        self.boundaries = 0
        self.legs: Counter[str] = Counter()
        self._missing = 0  # legs of the transfers read by half
        self._balances = [0] * ACCOUNTS
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "auditor",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                **QUICK,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, account, 0) for account in range(ACCOUNTS)])

    def read(self, wait_s: float) -> None:
        for message in self._consumer.consume(500, wait_s):
            error = message.error()
            if error is not None:
                assert error.retriable(), error
                continue
            name, legs, amount = json.loads(message.value() or b"")
            self._missing += legs - 1 if self.legs[name] == 0 else -1
            self.legs[name] += 1
            assert self.legs[name] <= legs, f"{name} came twice"
            self._balances[message.partition() or 0] += amount
            if self._missing == 0:
                self.boundaries += 1
                assert sum(self._balances) == ACCOUNTS * OPENING_BALANCE

    def close(self) -> None:
        self.read(0.5)  # there is nothing left to come
        assert self._missing == 0, "every transfer was read in full"
        self._consumer.close()


def insist(act: Callable[[], object]) -> None:
    """Do it until it is done: a call that ran out of time may be made again, and librdkafka says so."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            act()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return


@pytest.mark.parametrize(("seed", "crashes"), [(1, 0), (2, 0), (3, 3)])
def test_money_is_neither_made_nor_lost(penstock_broker_factory: BrokerFactory, seed: int, crashes: int) -> None:
    broker = penstock_broker_factory()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, ACCOUNTS)]).values():
        made.result(CALL_S)
    bank = Writer(broker.bootstrap, WRITERS, seed)
    insist(lambda: bank.producer.init_transactions(CALL_S))
    assert bank.transfer(Transfer("opening", dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE)), is_commit=True)

    auditor = Auditor(broker.bootstrap)
    writers = [Writer(broker.bootstrap, number, seed) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    committed_at_crash = TRANSFERS * WRITERS // (crashes + 1)
    while any(writer.is_alive() for writer in writers):
        auditor.read(0.05)
        if crashes and sum(len(writer.committed) for writer in writers) >= committed_at_crash:
            broker.crash_and_restart()
            crashes -= 1
            committed_at_crash += TRANSFERS * WRITERS // 5
    for writer in writers:
        writer.join()
        assert writer.failure is None, writer.failure

    committed = {"opening"}.union(*(writer.committed for writer in writers))
    aborted = set[str]().union(*(writer.aborted for writer in writers))
    deadline = time.monotonic() + DEADLINE_S
    while not committed <= auditor.legs.keys():
        assert time.monotonic() < deadline, f"{len(committed - auditor.legs.keys())} transfers did not come"
        auditor.read(0.2)
    auditor.close()
    assert set(auditor.legs) == committed, "and none that was given up"
    assert len(aborted) >= TRANSFERS * WRITERS * ABORTED_SHARE / 3
    assert auditor.boundaries > WRITERS
