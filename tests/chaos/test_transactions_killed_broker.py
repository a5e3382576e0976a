"""A broker is killed in its writes while transactions go on: each ends as a whole, and as its producer was told.

A transaction writes its state, its records, its offsets, that it is prepared, a marker for every partition, and that it
is complete. What the logs of the dead broker say tells which of these it died between; together the kills have to have
met all of them.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.chaos.broker_process import APPEND_CALL, Running, free_port, start_broker, why_not_traced
from tests.chaos.transaction_logs import STATES, Death, read_death, unmet

TOPIC = "orders"
PARTITIONS = 2  # as broker_process makes topics
GROUP = "billing"
ENDS = (True, False, True, True, False, True)  # which of the transactions are meant to be committed
DEADLINE_S = 60
CALL_S = 30
AT_ONCE = 2
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}

# The appends of the first three transactions, one by one; and syncs, which are of threads of their own.
APPENDS = [(APPEND_CALL, number) for number in range(8, 30)]
POINTS = [
    *APPENDS,
    *((APPEND_CALL, number) for number in (4, 40, 51)),
    *(("fdatasync", number) for number in (2, 5, 9, 14)),
]
ROUNDS_MAX = 4

REASON = why_not_traced()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


class Run:
    """One broker, one kill, one producer of transactions that does not give up."""

    def __init__(self, data_dir: Path, point: tuple[str, int]) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.data_dir = data_dir
        self.point = point
        self.running: Running | None = None
        self.death: Death | None = None
        # Of each transaction, how its producer heard that it ended; None if it never heard.
        self.told: list[bool | None] = []

    def run(self) -> Death | None:
        """Where it was killed; None if it never got that far."""
        traced = start_broker(self.bootstrap, self.data_dir, kill_at=self.point)
        is_killed_by_hand = False
        guardian = threading.Thread(target=self._start_again, args=(traced,))
        guardian.start()
        try:
            self._work()
        finally:
            if traced is not None and guardian.is_alive():
                is_killed_by_hand = True
                traced.kill()
            guardian.join(DEADLINE_S)
        assert self.running is not None, "after a kill it starts"
        self._judge()
        assert self.running.stop() == 0
        return None if is_killed_by_hand else self.death

    def _start_again(self, traced: Running | None) -> None:
        if traced is not None:
            traced.wait()
        self.death = read_death(self.data_dir, TOPIC)
        self.running = start_broker(self.bootstrap, self.data_dir)

    def _work(self) -> None:
        member = self._member()
        producer = self._open()
        for number, is_commit in enumerate(ENDS):
            try:
                self.told.append(_transaction(producer, member, number, is_commit=is_commit))
                # Answered when no transaction is about to change it: so the end of this one is written before the
                # beginning of the next, and not in one go with it.
                member.committed([TopicPartition(TOPIC, 0)], CALL_S)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self.told.append(None)
                producer = self._open()
        member.close()

    def _open(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": "payer",
                # With its default it forgets the broker when that dies, but not that it coordinates the group, and
                # waits for ever to send offsets there.
                "metadata.recovery.strategy": "none",
                "linger.ms": 0,
                **QUICK,
            }
        )
        _insist(lambda: producer.init_transactions(CALL_S))
        return producer

    def _member(self) -> Consumer:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": GROUP, "metadata.recovery.strategy": "none"}
        return Consumer({**settings, **QUICK})

    def _judge(self) -> None:
        self._open()  # whatever is still open is ended by the next producer of that id
        (seen, *others) = [self._committed(partition) for partition in range(PARTITIONS)]
        assert all(other == seen for other in others), "a transaction is in every partition or in none"
        assert seen == sorted(set(seen))
        for number, told in enumerate(self.told):
            assert told is None or told == (number in seen), f"transaction {number} ended otherwise than was said"
        consumer = self._member()
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], CALL_S)
        consumer.close()
        assert committed.offset == seen[-1] + 1, "the offsets are those of the last committed transaction"

    def _committed(self, partition: int) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "judge",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        found: list[int] = []
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "readers of committed records are held back"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            found.append(int(message.value() or b"-1"))
        consumer.close()
        return found


def _transaction(producer: Producer, member: Consumer, number: int, *, is_commit: bool) -> bool:
    """How it ended."""
    producer.begin_transaction()
    try:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        offsets = [TopicPartition(TOPIC, 0, number + 1)]
        _insist(lambda: producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), CALL_S))
        if is_commit:
            _insist(lambda: producer.commit_transaction(CALL_S))
            return True
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
    _insist(lambda: producer.abort_transaction(CALL_S))
    return False


def _insist(act: Callable[[], object]) -> None:
    while True:
        try:
            act()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def run_point(directory: Path, point: tuple[str, int]) -> Death | None:
    run = Run(directory / f"{point[0]}-{point[1]}", point)
    try:
        return run.run()
    finally:
        if run.running is not None:
            run.running.kill()


@pytest.mark.timeout(600)
def test_a_transaction_ends_the_same_way_wherever_the_broker_dies(tmp_path: Path) -> None:
    deaths: list[Death] = []
    states = set(STATES) - {"Empty"}
    for number in range(ROUNDS_MAX):
        with ThreadPoolExecutor(AT_ONCE) as pool:
            points = APPENDS if number else POINTS
            futures = {point: pool.submit(run_point, tmp_path / str(number), point) for point in points}
        troubles = {point: future.exception() for point, future in futures.items() if future.exception() is not None}
        assert troubles == {}
        deaths += [death for future in futures.values() if (death := future.result()) is not None]
        if not unmet(deaths, *states):
            break
    assert unmet(deaths, *states) == set(), deaths
