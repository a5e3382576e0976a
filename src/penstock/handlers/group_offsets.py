"""Offsets that groups commit: OffsetCommit, OffsetFetch, OffsetDelete.

Called by server.dispatch. Topics come by name, or by id from version 10 of the first two; inside, the name keys an
offset and the id tells it from one of an earlier topic of that name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.cluster.image import Topic
from penstock.errors import ErrorCode, PenstockError, UnsupportedVersion
from penstock.groups.group_records import CommittedOffset
from penstock.groups.offsets import OffsetToCommit, PartitionKey, is_of_topic
from penstock.handlers.context import HandlerContext, Request
from penstock.handlers.groups import group_code, milliseconds
from penstock.model import NO_TOPIC_ID

Body = Mapping[str, Any]

STABLE_FROM = 7
TOPIC_IDS_FROM = 10
MEMBER_EPOCHS_FROM = 9
NO_OFFSET = -1


async def handle_offset_commit(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    offsets: list[OffsetToCommit] = []
    # Where the code of each of them goes in the answer.
    places: list[dict[str, Any]] = []
    topics: list[Body] = []
    for asked in body.topics:
        topic, unknown = _find(context, asked, version)
        partitions: list[dict[str, Any]] = []
        topics.append({**_named(asked, version), "partitions": partitions})
        for partition in asked.partitions:
            index = partition.partition_index
            place = {"partition_index": index, "error_code": unknown}
            partitions.append(place)
            if topic is None:
                continue
            if not 0 <= index < len(topic.partitions):
                place["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            places.append(place)
            offsets.append(
                OffsetToCommit(
                    topic.name,
                    topic.id,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch if version >= 6 else -1,
                    partition.committed_metadata or "",
                )
            )
    committer = (body.member_id, body.group_instance_id if version >= 7 else None, body.generation_id_or_member_epoch)
    retention_ms = milliseconds(body.retention_time) if version <= 4 else -1
    try:
        if version < MEMBER_EPOCHS_FROM and context.groups.is_consumer_member(body.group_id, body.member_id):
            raise UnsupportedVersion("members of the consumer protocol commit with version 9 or later")
        codes = await context.groups.commit_offsets(body.group_id, committer, offsets, retention_ms)
    except PenstockError as error:
        codes = [_commit_code(error.code)] * len(offsets)
    for place, code in zip(places, codes, strict=True):
        place["error_code"] = code
    return {"topics": topics}


async def handle_offset_delete(context: HandlerContext, request: Request) -> Body:
    body = request.body
    keys: list[PartitionKey] = []
    places: list[dict[str, Any]] = []
    topics: list[Body] = []
    for asked in body.topics:
        partitions: list[dict[str, Any]] = []
        topics.append({"name": asked.name, "partitions": partitions})
        is_known = asked.name in context.image.topics
        for partition in asked.partitions:
            code = ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            place = {"partition_index": partition.partition_index, "error_code": code}
            partitions.append(place)
            if is_known:
                places.append(place)
                keys.append((asked.name, partition.partition_index))
    try:
        group_level, codes = await context.groups.delete_offsets(body.group_id, keys)
    except PenstockError as error:
        group_level, codes = group_code(error.code), []
    if group_level is not ErrorCode.NONE:
        return {"error_code": group_level, "topics": []}
    for place, code in zip(places, codes, strict=True):
        place["error_code"] = code
    return {"error_code": ErrorCode.NONE, "topics": topics}


def handle_offset_fetch(context: HandlerContext, request: Request) -> Body:
    body, version = request.body, request.version
    # Clients older than version 7 have never heard of unstable offsets and are given the last that was committed.
    must_be_stable: bool = version >= STABLE_FROM and body.require_stable
    if version >= 8:
        return {"groups": [_fetch(context, group, version, must_be_stable) for group in body.groups]}
    answer = _fetch(context, body, version, must_be_stable)
    return {"error_code": answer["error_code"], "topics": answer["topics"]}


def _fetch(context: HandlerContext, asked: Any, version: int, must_be_stable: bool) -> Body:
    group_id: str = asked.group_id
    try:
        if version >= MEMBER_EPOCHS_FROM:
            code = context.groups.check_fetch(group_id, asked.member_id, asked.member_epoch)
            if code is not ErrorCode.NONE:
                return {"group_id": group_id, "error_code": code, "topics": []}
        if asked.topics is None:
            topics = _all_offsets(context, group_id, version, must_be_stable)
        else:
            topics = [_topic_offsets(context, group_id, topic, version, must_be_stable) for topic in asked.topics]
    except PenstockError as error:
        topics: list[Body] = []
        if version < 2 and asked.topics is not None:
            # The first version has no place for an error but with each partition.
            topics = [_failed(topic, error.code, version) for topic in asked.topics]
        return {"group_id": group_id, "error_code": error.code, "topics": topics}
    return {"group_id": group_id, "error_code": ErrorCode.NONE, "topics": topics}


def _topic_offsets(context: HandlerContext, group_id: str, asked: Any, version: int, must_be_stable: bool) -> Body:
    topic, unknown = _find(context, asked, version)
    if topic is None and version >= TOPIC_IDS_FROM:
        # Asked even so: that the group is not served here is the more useful answer.
        context.groups.find(group_id)
        return _failed(asked, unknown, version)
    name, topic_id = (asked.name, NO_TOPIC_ID) if topic is None else (topic.name, topic.id)
    groups = context.groups
    return {
        **_named(asked, version),
        "partitions": [
            _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            if must_be_stable and groups.is_unstable(group_id, name, index)
            else _partition_offset(index, groups.committed_offset(group_id, name, topic_id, index))
            for index in asked.partition_indexes
        ],
    }


def _all_offsets(context: HandlerContext, group_id: str, version: int, must_be_stable: bool) -> list[Body]:
    by_topic: dict[str, list[Body]] = {}
    known = context.image.topics
    for name, index, committed in context.groups.committed_offsets(group_id):
        topic = known.get(name)
        is_stale = topic is not None and not is_of_topic(committed, topic.id)
        # By id only topics that exist can be named.
        if is_stale or (topic is None and version >= TOPIC_IDS_FROM):
            continue
        is_unstable = must_be_stable and context.groups.is_unstable(group_id, name, index)
        by_topic.setdefault(name, []).append(
            _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT) if is_unstable else _partition_offset(index, committed)
        )
    # Not both: the versions for one group alone have never heard of ids.
    if version >= TOPIC_IDS_FROM:
        return [{"topic_id": known[name].id, "partitions": partitions} for name, partitions in by_topic.items()]
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]


def _partition_offset(index: int, committed: CommittedOffset | None) -> Body:
    if committed is None:
        return _no_offset(index, ErrorCode.NONE)
    return {
        "partition_index": index,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": ErrorCode.NONE,
    }


def _no_offset(index: int, code: ErrorCode) -> Body:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }


def _failed(asked: Any, code: ErrorCode, version: int) -> Body:
    indexes: Iterable[int] = asked.partition_indexes
    return {**_named(asked, version), "partitions": [_no_offset(index, code) for index in indexes]}


def _find(context: HandlerContext, asked: Any, version: int) -> tuple[Topic | None, ErrorCode]:
    """The topic meant, or the code that says that there is none."""
    if version >= TOPIC_IDS_FROM:
        return context.image.topics_by_id.get(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    return context.image.topics.get(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _named(asked: Any, version: int) -> Body:
    return {"topic_id": asked.topic_id} if version >= TOPIC_IDS_FROM else {"name": asked.name}


def _commit_code(code: ErrorCode) -> ErrorCode:
    if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return code
