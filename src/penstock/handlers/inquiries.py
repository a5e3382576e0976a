"""What is asked of the coordinator of a transaction, wherever that is: are these partitions in it, or, add them.

Called by handlers.verification. One that is here is called; one on another broker is asked with AddPartitionsToTxn, as
Kafka's brokers ask each other (KIP-890), by all who have to ask at the same time in one request.
Law: every inquiry ends in a code for each partition; that nobody answered is one of them.
"""

import asyncio
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.peers import Peers
from penstock.cluster.image import ClusterImage
from penstock.coordination import partition_of
from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.peer_questions import PeerQuestions
from penstock.model import TRANSACTION_STATE_TOPIC, TopicPartition
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.wire.apis import ApiKey

ADD_PARTITIONS_TO_TXN_VERSION = 5
# Just above what the coordinator takes at most: its log may be slow to commit, and says so after five seconds.
TIMEOUT_S = 6.0

Codes = Mapping[TopicPartition, ErrorCode]


class TransactionalProducer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Coordinator(NamedTuple):
    node_id: int
    epoch: int  # the leader epoch of its partition: its markers have it too


class _Inquiry(NamedTuple):
    producer: TransactionalProducer
    partitions: Collection[TopicPartition]
    adds: bool
    answer: asyncio.Future[Codes]

    @property
    def key(self) -> Hashable:
        return self.producer.transactional_id  # by which the answers are told apart


class TransactionInquiries:
    def __init__(self, image: ClusterImage, node_id: int, transactions: TransactionCoordinator, peers: Peers) -> None:
        self._image = image
        self._node_id = node_id
        self._transactions = transactions
        self._peers = peers
        self._inquiries = PeerQuestions(self._send)

    def find(self, transactional_id: str) -> Coordinator | None:
        """Who coordinates it now; None while nobody does."""
        topic = self._image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        state = topic.partitions[partition_of(transactional_id, len(topic.partitions))]
        if state.leader != self._node_id and state.leader not in self._image.brokers:
            return None
        return Coordinator(state.leader, state.leader_epoch)

    def is_here(self, coordinator: Coordinator) -> bool:
        return coordinator.node_id == self._node_id

    async def ask(
        self,
        coordinator: Coordinator,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Codes:
        """For each partition whether it is in the open transaction of the producer, made so first if it `adds`."""
        if self.is_here(coordinator):
            return await self._ask_here(producer, partitions, adds)
        inquiry = _Inquiry(producer, partitions, adds, asyncio.get_running_loop().create_future())
        if not self._inquiries.put(coordinator.node_id, inquiry):
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            return await inquiry.answer
        except PenstockError as error:
            return dict.fromkeys(partitions, error.code)

    async def close(self) -> None:
        await self._inquiries.close()
        await self._peers.close()

    async def _ask_here(
        self, producer: TransactionalProducer, partitions: Collection[TopicPartition], adds: bool
    ) -> Codes:
        try:
            if adds:
                return dict.fromkeys(partitions, await self._transactions.add_partitions(*producer, partitions))
            return self._transactions.verify_partitions(*producer, partitions)
        except PenstockError as error:
            return dict.fromkeys(partitions, error.code)

    async def _send(self, node_id: int, inquiries: Sequence[_Inquiry]) -> None:
        body = {"transactions": [_as_body(inquiry) for inquiry in inquiries]}
        api, version = ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_TO_TXN_VERSION
        answers: dict[str, Codes] = {}
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            reply = await self._peers.request(node_id, api, version, body, timeout_s=TIMEOUT_S)
        except PenstockError as error:
            missing = error.code
        else:
            if reply.error_code != ErrorCode.NONE:
                missing = ErrorCode(reply.error_code)
            answers = {result.transactional_id: _codes(result) for result in reply.results_by_transaction}
        for inquiry in inquiries:
            if not inquiry.answer.done():
                codes = answers.get(inquiry.producer.transactional_id, {})
                inquiry.answer.set_result({at: codes.get(at, missing) for at in inquiry.partitions})


def _as_body(inquiry: _Inquiry) -> Mapping[str, Any]:
    topics: dict[str, list[int]] = {}
    for at in inquiry.partitions:
        topics.setdefault(at.topic, []).append(at.partition)
    return {
        **inquiry.producer._asdict(),
        "verify_only": not inquiry.adds,
        "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def _codes(result: Any) -> Codes:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
