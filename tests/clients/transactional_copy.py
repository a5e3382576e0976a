"""A program that copies a topic exactly once: what it reads, writes and commits is one transaction after the other.

Called by test_cluster. It goes on as such programs do: after an error it knows nothing, so it begins anew, as another
producer of the same transactional id and another member of the same group.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from client import Client, Consumer, Producer, Record
from driver import ClientError

AT_ONCE = 5
DEADLINE_S = 90.0


class Copier:
    def __init__(self, client: Client, source: str, target: str, name: str, **member_settings: Any) -> None:
        self.errors: list[str] = []
        self.transactions = 0
        self._client = client
        self._source = source
        self._target = target
        self._name = name  # of the group, and of the producer
        self._member_settings = member_settings
        self._position = 0
        self._producer, self._member = self._begin()

    def copy(self, end: int, in_the_middle: Callable[[int], None]) -> None:
        """Copy what lies below the offset. `in_the_middle` is called in every transaction, before it is committed."""
        deadline = time.monotonic() + DEADLINE_S
        has_failed = False
        while self._position < end:
            try:
                if has_failed:
                    self._begin_anew()
                    has_failed = False
                self._copy_some(in_the_middle)
            except ClientError as error:
                self.errors.append(str(error))
                assert time.monotonic() < deadline, self.errors
                has_failed = True

    def _begin_anew(self) -> None:
        for part in (self._member, self._producer):
            with suppress(ClientError):
                part.close()
        self._position = -1  # whether it was committed the group will tell
        self._producer, self._member = self._begin()

    def _begin(self) -> tuple[Producer, Consumer]:
        # In this order: the producer has its predecessor's transaction ended, so that the offsets are known.
        producer = self._client.producer(transactional_id=self._name)
        return producer, self._client.member(
            self._name, self._source, isolation="read_committed", **self._member_settings
        )

    def _copy_some(self, in_the_middle: Callable[[int], None]) -> None:
        self._member.wait_until(lambda: bool(self._fresh()), f"something at {self._position}")
        batch = self._fresh()[:AT_ONCE]
        reached = (batch[-1].offset or 0) + 1
        self._producer.begin_transaction()
        self._producer.send(self._target, [Record(record.value) for record in batch])
        self._producer.send_offsets(self._member, self._name, {(self._source, 0): reached})
        in_the_middle(self.transactions)
        self._producer.commit_transaction()
        self.transactions += 1
        self._position = reached

    def _fresh(self) -> list[Record]:
        """What was told and not copied, in order and once, though a member may have been told twice."""
        told = {record.offset or 0: record for _, record in list(self._member.records)}
        return [told[offset] for offset in sorted(told) if offset >= self._position]
