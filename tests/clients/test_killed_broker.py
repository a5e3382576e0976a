"""A broker is killed in its writes while transactions of version 2 go on: each is whole, and as its producer was told.

As tests/chaos does with transactions of version 1, which are those of librdkafka.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from client import Client, Producer, Record
from driver import ClientError, Driver
from roster import clients
from tests.chaos.broker_process import APPEND_CALL, Running, free_port, start_broker, why_not_traced
from tests.chaos.transaction_logs import Death, read_death, unmet

TOPIC = "orders"
PARTITIONS = 2
ID = "payer"
ENDS = (True, False, True)  # which of the transactions are meant to be committed
FIRST, LAST = 4, 20  # appends: from the first transaction into the third
ROUNDS_MAX = 4
# Not the complete ones: the end of a transaction may share a write with the beginning of the next.
STATES_MET = ("Ongoing", "PrepareCommit", "PrepareAbort")
DEADLINE_S = 60

REASON = why_not_traced()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


class Broker:
    """It is started again as soon as it has died."""

    def __init__(self, data_dir: Path, kill_at: int) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.death: Death | None = None
        self._data_dir = data_dir
        self._traced = start_broker(self.bootstrap, data_dir, kill_at=(APPEND_CALL, kill_at))
        self._pool = ThreadPoolExecutor(1)
        self._next: Future[Running | None] = self._pool.submit(self._start_again)

    def _start_again(self) -> Running | None:
        if self._traced is not None:
            self._traced.wait()
        self.death = read_death(self._data_dir, TOPIC)
        return start_broker(self.bootstrap, self._data_dir)

    def settle(self) -> None:
        """It has died by now, or dies here; and runs again."""
        if self._traced is not None and not self._next.done():
            self._traced.kill()
        assert self._next.result(DEADLINE_S) is not None, "after a kill it starts"

    def end(self) -> None:
        if self._traced is not None and not self._next.done():
            self._traced.kill()
        running = self._next.result(DEADLINE_S)
        if running is not None:
            running.kill()
        self._pool.shutdown()


def run(driver: Driver, broker: Broker) -> None:
    client = Client(driver, broker.bootstrap)
    producer = client.producer(transactional_id=ID)
    told: list[bool | None] = []
    for number, is_commit in enumerate(ENDS):
        try:
            told.append(_transaction(producer, number, is_commit=is_commit))
        except ClientError:
            told.append(None)  # how it ended it never heard; the next producer of this id finds out
            broker.settle()  # some give up within the time that a start takes
            producer = client.producer(transactional_id=ID)
    assert told.count(None) <= 1, "it died only once"
    broker.settle()
    last = len(ENDS)
    _transaction(client.producer(transactional_id=ID), last, is_commit=True)

    seen = [_committed_until(client, partition, last) for partition in range(PARTITIONS)]
    assert seen[0] == seen[1], "a transaction is in every partition or in none"
    assert seen[0] == sorted(set(seen[0]))
    for number, end in enumerate(told):
        assert end is None or end == (number in seen[0]), f"transaction {number} ended otherwise than was said"
    client.close()


def _transaction(producer: Producer, number: int, *, is_commit: bool) -> bool:
    producer.begin_transaction()
    producer.send(TOPIC, [Record(b"%d" % number, partition=partition) for partition in range(PARTITIONS)])
    producer.begin_end(is_commit=is_commit).result(DEADLINE_S)
    return is_commit


def _committed_until(client: Client, partition: int, last: int) -> list[int]:
    reader = client.reader(TOPIC, "beginning", partition, isolation="read_committed")
    reader.wait_until(lambda: b"%d" % last in reader.values, "the last transaction")
    return [int(value or b"-1") for value in reader.values]


@pytest.mark.timeout(600)
@clients("version_2")
def test_a_transaction_ends_the_same_way_wherever_the_broker_dies(driver: Driver, tmp_path: Path) -> None:
    deaths: list[Death] = []
    for attempt in range(ROUNDS_MAX):
        for number in range(FIRST, LAST + 1):
            broker = Broker(tmp_path / f"{attempt}-{number}", number)
            try:
                run(driver, broker)
            finally:
                broker.end()
            if broker.death is not None:
                deaths.append(broker.death)
        if not unmet(deaths, *STATES_MET):
            break
    assert unmet(deaths, *STATES_MET) == set(), deaths
