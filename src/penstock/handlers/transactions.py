"""A producer's transaction: partitions and offsets that join it, its end, and the markers that tell the partitions.

Called by server.dispatch. Each handler turns a request of any version into a call of the coordinator, and its answer,
or the error it raised, into the response; the rules are in penstock.transactions and penstock.groups.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import ErrorCode, PenstockError
from penstock.groups.offsets import OffsetToCommit
from penstock.handlers.context import HandlerContext, Request
from penstock.handlers.inquiries import TransactionalProducer
from penstock.handlers.verification import ASK_AGAIN, add, ask, code_now, is_outdated, known_to_old_clients, refusals
from penstock.model import GROUP_OFFSETS_TOPIC, TopicPartition
from penstock.records.markers import ControlType, Marker
from penstock.transactions.markers import MarkerToWrite

Body = Mapping[str, Any]
Codes = dict[TopicPartition, ErrorCode]

BATCHED_FROM = 4  # AddPartitionsToTxn: several transactions in one request
FENCED_FROM = 2  # AddPartitionsToTxn, AddOffsetsToTxn and EndTxn tell a fenced producer from a wrong epoch
END_VERSION_2_FROM = 5  # EndTxn: every transaction ends with a new epoch (KIP-890)
COMMIT_MEMBERS_FROM = 3  # TxnOffsetCommit: who commits, and in which generation (KIP-447)
COMMIT_ABORTABLE_FROM = 4
COMMIT_ADDS_FROM = 5  # TxnOffsetCommit makes the group a part of the transaction by itself
TRANSACTION_VERSION_2 = 2
NO_PRODUCER_ID, NO_PRODUCER_EPOCH = -1, -1
# The last: a coordinator elsewhere has not heard yet of the topic that keeps offsets.
_COORDINATOR_AWAY = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


# Partitions


async def handle_add_partitions_to_txn(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    if version < BATCHED_FROM:
        producer = TransactionalProducer(
            body.v3_and_below_transactional_id, body.v3_and_below_producer_id, body.v3_and_below_producer_epoch
        )
        # Only these are of clients; what comes in batches, brokers ask for them.
        connection = request.connection.number
        codes = await _add_partitions(context, producer, body.v3_and_below_topics, connection=connection)
        if version < FENCED_FROM:
            codes = {at: _unfenced(code) for at, code in codes.items()}
        return {"results_by_topic_v3_and_below": _by_topic(body.v3_and_below_topics, codes)}
    # All at once, so that those of one partition of `__transaction_state` share a batch.
    results = await asyncio.gather(*(_add_to_one(context, asked) for asked in body.transactions))
    return {"error_code": ErrorCode.NONE, "results_by_transaction": results}


async def _add_to_one(context: HandlerContext, asked: Any) -> Body:
    producer = TransactionalProducer(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    codes = await _add_partitions(context, producer, asked.topics, verify_only=asked.verify_only)
    return {"transactional_id": asked.transactional_id, "topic_results": _by_topic(asked.topics, codes)}


async def _add_partitions(
    context: HandlerContext,
    producer: TransactionalProducer,
    topics: Iterable[Any],
    *,
    verify_only: bool = False,
    connection: int | None = None,
) -> Codes:
    partitions = _partitions(topics)
    unknown = [at for at in partitions if not _exists(context, at)]
    if unknown:
        # All or none: a transaction that has joined only some of what its producer writes to could be torn.
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return {**codes, **dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    if verify_only:
        return dict.fromkeys(partitions, ErrorCode.NONE) | refusals(context, producer, partitions)
    return dict.fromkeys(partitions, await add(context, producer, partitions, connection))


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    """Each partition once, however often it is named."""
    return list(dict.fromkeys(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions))


def _exists(context: HandlerContext, at: TopicPartition) -> bool:
    topic = context.image.topics.get(at.topic)
    return topic is not None and 0 <= at.partition < len(topic.partitions)


def _by_topic(topics: Iterable[Any], codes: Codes) -> list[Body]:
    """An answer for each partition asked for; a topic or partition named twice is answered once."""
    found: dict[str, list[Body]] = {topic.name: [] for topic in topics}
    for at, code in codes.items():
        found[at.topic].append({"partition_index": at.partition, "partition_error_code": code})
    return [{"name": name, "results_by_partition": partitions} for name, partitions in found.items()]


# Offsets


async def handle_add_offsets_to_txn(context: HandlerContext, request: Request) -> Body:
    body = request.body
    producer = TransactionalProducer(body.transactional_id, body.producer_id, body.producer_epoch)
    try:
        at = await _offsets_partition(context, body.group_id)
    except PenstockError:
        return {"error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    code = await add(context, producer, [at], request.connection.number)
    return {"error_code": code if request.version >= FENCED_FROM else _unfenced(code)}


async def _offsets_partition(context: HandlerContext, group_id: str) -> TopicPartition:
    """Where the group keeps its offsets: the partition that joins the transaction, and will get its marker."""
    if GROUP_OFFSETS_TOPIC not in context.image.topics:
        await context.ensure_internal_topic(GROUP_OFFSETS_TOPIC)
    return TopicPartition(GROUP_OFFSETS_TOPIC, context.groups.partition_of(group_id))


async def handle_txn_offset_commit(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    offsets: list[OffsetToCommit] = []
    # Where the code of each of them goes in the answer.
    places: list[dict[str, Any]] = []
    topics: list[Body] = []
    for asked in body.topics:
        topic = context.image.topics.get(asked.name)
        partitions: list[dict[str, Any]] = []
        topics.append({"name": asked.name, "partitions": partitions})
        for partition in asked.partitions:
            index = partition.partition_index
            place = {"partition_index": index, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            partitions.append(place)
            if topic is None or not 0 <= index < len(topic.partitions):
                continue
            places.append(place)
            leader_epoch = partition.committed_leader_epoch if version >= 2 else -1
            metadata = partition.committed_metadata or ""
            offsets.append(
                OffsetToCommit(topic.name, topic.id, index, partition.committed_offset, leader_epoch, metadata)
            )
    if offsets:
        for place, code in zip(places, await _commit(context, request, offsets), strict=True):
            place["error_code"] = _commit_code(code, version)
    return {"topics": topics}


async def _commit(context: HandlerContext, request: Request, offsets: list[OffsetToCommit]) -> list[ErrorCode]:
    """A code for each of the offsets, which count once the transaction is committed."""
    body, version = request.body, request.version
    producer = TransactionalProducer(body.transactional_id, body.producer_id, body.producer_epoch)
    committer = ("", None, -1)
    if version >= COMMIT_MEMBERS_FROM:
        committer = (body.member_id, body.group_instance_id, body.generation_id)
    try:
        at = await _offsets_partition(context, body.group_id)
        code = await _verify_offsets(context, producer, at, adds=version >= COMMIT_ADDS_FROM)
        if code is not ErrorCode.NONE:
            return [code] * len(offsets)
        # Allowed and begun in one turn: the transaction cannot end in between.
        return await context.groups.commit_in_transaction(
            body.group_id, producer.producer_id, producer.producer_epoch, committer, offsets
        )
    except PenstockError as error:
        return [error.code] * len(offsets)


async def _verify_offsets(
    context: HandlerContext, producer: TransactionalProducer, at: TopicPartition, *, adds: bool
) -> ErrorCode:
    """Whether offsets may be written there for the producer, in the turn of the loop in which this returns."""
    coordinator = context.inquiries.find(producer.transactional_id)
    if coordinator is None:
        return ASK_AGAIN
    # Raises what a group coordinator says of a partition that is not led here.
    context.groups.check_leads(at.partition)
    partition = context.replicas.find(at.topic, at.partition)
    if context.inquiries.is_here(coordinator) and not is_outdated(coordinator, partition, producer.producer_id):
        refused = refusals(context, producer, [at])
        if not (refused and adds):
            return refused.get(at, ErrorCode.NONE)
    answered = await ask(context, coordinator, producer, [partition], adds=adds)
    code = code_now(answered, partition, producer.producer_id)
    # The client would look for another group coordinator, and it is the transaction's that is away.
    return ASK_AGAIN if code in _COORDINATOR_AWAY else code


def _commit_code(code: ErrorCode, version: int) -> ErrorCode:
    match code:
        case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version < 2:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE  # which the first clients retry, unlike the true one
        case ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.ILLEGAL_GENERATION  # what producers call it, whichever protocol the group speaks
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        case _:
            return known_to_old_clients(code, knows_abortable=version >= COMMIT_ABORTABLE_FROM)


# The end


async def handle_end_txn(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    try:
        code, producer_id, producer_epoch = await context.transactions.end(
            body.transactional_id,
            body.producer_id,
            body.producer_epoch,
            is_commit=body.committed,
            is_version_2=version >= END_VERSION_2_FROM,
            connection=request.connection.number,
        )
    except PenstockError as error:
        code, producer_id, producer_epoch = error.code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    return {
        "error_code": code if version >= FENCED_FROM else _unfenced(code),
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }


async def handle_write_txn_markers(context: HandlerContext, request: Request) -> Body:
    # Together: each is written, in order, before the first is waited for.
    return {"markers": await asyncio.gather(*(_write_marker(context, asked) for asked in request.body.markers))}


async def _write_marker(context: HandlerContext, asked: Any) -> Body:
    control_type = ControlType.COMMIT if asked.transaction_result else ControlType.ABORT
    marker = Marker(control_type, asked.coordinator_epoch)
    at_each = dict.fromkeys(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes
    )
    if asked.producer_id < 0 or asked.producer_epoch < 0:
        # No producer has such a number, so there is nothing that this marker could end.
        codes = dict.fromkeys(at_each, ErrorCode.INVALID_REQUEST)
    else:
        # Version 1 of the request has no word for it.
        is_version_2 = getattr(asked, "transaction_version", 0) >= TRANSACTION_VERSION_2
        codes = await context.write_markers(
            [MarkerToWrite(at, marker, asked.producer_id, asked.producer_epoch, is_version_2) for at in at_each]
        )
    topics: dict[str, list[Body]] = {topic.name: [] for topic in asked.topics}
    for at in at_each:
        topics[at.topic].append({"partition_index": at.partition, "error_code": codes[at]})
    return {
        "producer_id": asked.producer_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _unfenced(code: ErrorCode) -> ErrorCode:
    """For versions older than the word: a fenced producer is one with a wrong epoch."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
