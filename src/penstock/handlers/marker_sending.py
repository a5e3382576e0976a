"""Transaction markers on their way to the leaders of their partitions, here and on other brokers.

Called by transactions.coordinator, to which broker gives it; deliver() there tries again whatever failed here.
Invariants:
- The leader is looked up anew at every try: a marker follows its partition.
- UNKNOWN_TOPIC_OR_PARTITION is said only when our own image has no such partition. Another broker's may be older.
"""

import asyncio
from collections.abc import Awaitable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.peers import Peers
from penstock.cluster.image import ClusterImage
from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.peer_questions import PeerQuestions
from penstock.model import TopicPartition
from penstock.records.markers import ControlType
from penstock.transactions.markers import MarkerToWrite, WriteMarkers
from penstock.transactions.transaction import VERSION_1, VERSION_2
from penstock.wire.apis import ApiKey

WRITE_TXN_MARKERS_VERSION = 2
# Longer than the other side waits for its log (marker_writing.COMMIT_TIMEOUT_S), as its answer says which are written;
# not much longer, as a broker that hangs holds up the markers of partitions that are soon led elsewhere.
TIMEOUT_S = 6.0

Codes = dict[TopicPartition, ErrorCode]


class _Letter(NamedTuple):
    """All markers of one transaction that go to one broker."""

    markers: Sequence[MarkerToWrite]
    answer: asyncio.Future[Codes]

    @property
    def key(self) -> Hashable:
        return self.markers[0].producer_id  # by which the answers are told apart


class MarkerSender:
    def __init__(self, image: ClusterImage, node_id: int, write_here: WriteMarkers, peers: Peers) -> None:
        self._image = image
        self._node_id = node_id
        self._write_here = write_here
        self._peers = peers
        self._letters = PeerQuestions(self._send)

    async def write(self, markers: Sequence[MarkerToWrite]) -> Codes:
        """The outcome for each partition. A partition may be named once: the next marker of it has the next call."""
        codes: Codes = {}
        here: list[MarkerToWrite] = []
        elsewhere: dict[tuple[int, int], list[MarkerToWrite]] = {}
        for marker in markers:
            leader = self._leader_of(marker.partition)
            if isinstance(leader, ErrorCode):
                codes[marker.partition] = leader
            elif leader == self._node_id:
                here.append(marker)
            else:
                elsewhere.setdefault((leader, marker.producer_id), []).append(marker)
        writes: list[Awaitable[Codes]] = [self._post(node_id, letter) for (node_id, _), letter in elsewhere.items()]
        if here:
            writes.append(self._write_here(here))
        for outcome in await asyncio.gather(*writes):
            codes |= outcome
        return codes

    async def close(self) -> None:
        await self._letters.close()
        await self._peers.close()

    def _leader_of(self, at: TopicPartition) -> int | ErrorCode:
        topic = self._image.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        leader = topic.partitions[at.partition].leader
        if leader != self._node_id and leader not in self._image.brokers:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return leader

    async def _post(self, node_id: int, markers: Sequence[MarkerToWrite]) -> Codes:
        letter = _Letter(markers, asyncio.get_running_loop().create_future())
        if not self._letters.put(node_id, letter):
            return _all(markers, ErrorCode.REQUEST_TIMED_OUT)
        return await letter.answer

    async def _send(self, node_id: int, letters: Sequence[_Letter]) -> None:
        body = {"markers": [_as_body(letter.markers) for letter in letters]}
        api, version = ApiKey.WRITE_TXN_MARKERS, WRITE_TXN_MARKERS_VERSION
        try:
            reply = await self._peers.request(node_id, api, version, body, timeout_s=TIMEOUT_S)
        except PenstockError as error:
            for letter in letters:
                _settle(letter, _all(letter.markers, error.code))
            return
        answers = {answered.producer_id: answered for answered in reply.markers}
        for letter in letters:
            codes = _codes(answers.get(letter.markers[0].producer_id))
            _settle(letter, {marker.partition: _heard(codes, marker.partition) for marker in letter.markers})


def _as_body(markers: Sequence[MarkerToWrite]) -> Mapping[str, Any]:
    _, marker, producer_id, producer_epoch, is_version_2 = markers[0]
    topics: dict[str, list[int]] = {}
    for at, *_ in markers:
        topics.setdefault(at.topic, []).append(at.partition)
    return {
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "transaction_result": marker.control_type is ControlType.COMMIT,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": VERSION_2 if is_version_2 else VERSION_1,
    }


def _codes(answered: Any) -> Codes:
    if answered is None:
        return {}
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in answered.topics
        for partition in topic.partitions
    }


def _heard(codes: Codes, at: TopicPartition) -> ErrorCode:
    code = codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR)
    # It may not have heard of the partition yet. If that is gone, our own image will say so at the next try.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code


def _settle(letter: _Letter, codes: Codes) -> None:
    if not letter.answer.done():
        letter.answer.set_result(codes)


def _all(markers: Sequence[MarkerToWrite], code: ErrorCode) -> Codes:
    return {marker.partition: code for marker in markers}
