"""A real broker is killed in its system calls while a real producer writes: each message is there, once, in order."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.chaos.broker_process import APPEND_CALL, Running, free_port, start_broker, why_not_traced

MESSAGES = 120
PARTITIONS = 2
VALUE_BYTES = 1000
DEADLINE_S = 60
AT_ONCE = 2

# The number counts the calls of one thread. Appends and rolls are the loop's, syncs and checkpoints are the I/O
# threads', and SQLite has a thread of its own.
POINTS = [
    *((APPEND_CALL, number) for number in (1, 2, 5, 11, 17, 23, 29)),
    *(("fdatasync", number) for number in (1, 2, 4, 8)),
    *(("fsync", number) for number in (1, 2, 4, 6, 9)),
    *(("rename", number) for number in (1, 2, 3, 5)),
    *(("ftruncate", number) for number in (1, 2)),
    *(("pwrite64", number) for number in (4, 20)),
]

REASON = why_not_traced()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


class Run:
    """One broker, one kill, one producer that does not give up."""

    def __init__(self, data_dir: Path, point: tuple[str, int]) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.data_dir = data_dir
        self.point = point
        self.is_killed_by_hand = False
        self.running: Running | None = None
        self.errors: list[KafkaError] = []
        self.acked: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.offsets: dict[tuple[int, int], int] = {}

    def run(self) -> bool:
        """True if the kill came from where it was meant to come from."""
        traced = start_broker(self.bootstrap, self.data_dir, kill_at=self.point)
        guardian = threading.Thread(target=self._start_again, args=(traced,))
        guardian.start()
        try:
            self._produce()
        finally:
            if traced is not None and guardian.is_alive():
                # It never gets that far, or is on its way down already.
                self.is_killed_by_hand = True
                traced.kill()
            guardian.join(DEADLINE_S)
        assert self.running is not None, "after a kill it starts"
        assert self.errors == []
        for partition in range(PARTITIONS):
            expected = list(range(partition, MESSAGES, PARTITIONS))
            assert self.acked[partition] == expected
            assert self._consume(partition) == [(self.offsets[partition, number], number) for number in expected]
        assert self.running.stop() == 0
        return not self.is_killed_by_hand

    def _start_again(self, traced: Running | None) -> None:
        if traced is not None:
            traced.wait()
        self.running = start_broker(self.bootstrap, self.data_dir)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 5,
                "message.timeout.ms": DEADLINE_S * 1000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        for number in range(MESSAGES):
            value = str(number).encode().ljust(VALUE_BYTES, b".")
            producer.produce("orders", value, partition=number % PARTITIONS, on_delivery=self._told)
            producer.poll(0.002)
        assert producer.flush(DEADLINE_S) == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        number, partition = int((message.value() or b"").rstrip(b".")), message.partition() or 0
        self.acked[partition].append(number)
        self.offsets[partition, number] = message.offset() or 0

    def _consume(self, partition: int) -> list[tuple[int, int]]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "r", "enable.partition.eof": True})
        consumer.assign([TopicPartition("orders", partition, 0)])
        found: list[tuple[int, int]] = []
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                break
            found.append((message.offset() or 0, int((message.value() or b"").rstrip(b"."))))
        consumer.close()
        return found


def run_point(directory: Path, point: tuple[str, int]) -> bool:
    run = Run(directory / f"{point[0]}-{point[1]}", point)
    try:
        return run.run()
    finally:
        if run.running is not None:
            run.running.kill()


@pytest.mark.timeout(300)
def test_a_broker_killed_in_a_system_call_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {point: pool.submit(run_point, tmp_path, point) for point in POINTS}
    troubles = {point: future.exception() for point, future in futures.items() if future.exception() is not None}
    assert troubles == {}
    killed = [point for point, future in futures.items() if future.result()]
    assert len(killed) >= 20, f"only these took effect: {killed}"
