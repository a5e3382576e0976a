"""REST v3: consumer groups, their members, what each reads and how far behind it is.

Called by gateway.rest. Lag is what penstock.admin.group_lag finds; here it gets Confluent's names.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.group_lag import GroupView, PartitionLag, view_groups
from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, json_response
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import CLUSTER_ID, RELATED, Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.names import plain_name, topic_name
from penstock.gateway.rest.table import (
    BOOLEAN,
    INTEGER,
    PARTITION,
    STRING,
    Answer,
    Operation,
    Row,
    Schema,
    nullable,
    path_int,
    path_parameters,
)
from penstock.gateway.rest.v2_topics import TOPIC_NAME
from penstock.model import TopicPartition

TAG = "Consumer groups (v3)"
GROUPS_TOLD_MAX = 10_000
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 249}

_GROUP = resource_schema(
    ("consumer_group_id", "is_simple", "partition_assignor", "state"),
    consumer_group_id=STRING,
    is_simple=BOOLEAN,
    partition_assignor=STRING,
    state=STRING,
    consumers=RELATED,
    lag_summary=RELATED,
)
_CONSUMER = resource_schema(
    ("consumer_group_id", "consumer_id", "client_id"),
    consumer_group_id=STRING,
    consumer_id=STRING,
    instance_id=nullable(STRING),
    client_id=STRING,
    assignments=RELATED,
)
_ASSIGNMENT = resource_schema(
    ("consumer_group_id", "consumer_id", "topic_name", "partition_id"),
    consumer_group_id=STRING,
    consumer_id=STRING,
    topic_name=STRING,
    partition_id=INTEGER,
    partition=RELATED,
    lag=RELATED,
)
_LAG = resource_schema(
    ("consumer_group_id", "topic_name", "partition_id", "current_offset", "log_end_offset", "lag"),
    consumer_group_id=STRING,
    topic_name=STRING,
    partition_id=INTEGER,
    consumer_id=nullable(STRING),
    instance_id=nullable(STRING),
    client_id=nullable(STRING),
    current_offset=INTEGER,
    log_end_offset=INTEGER,
    lag=INTEGER,
)
_SUMMARY = resource_schema(("consumer_group_id", "max_lag", "total_lag"), max_lag=INTEGER, total_lag=INTEGER)


def _group_not_found() -> HttpProblem:
    return HttpProblem(404, 404, "There is no such consumer group.")


def _consumer_not_found() -> HttpProblem:
    return HttpProblem(404, 404, "The consumer group has no such member.")


def _lag_not_found() -> HttpProblem:
    return HttpProblem(404, 404, "The group reads no such partition.")


class V3Groups:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        place = {"topic_name": TOPIC_NAME, "partition_id": PARTITION}
        cluster = path_parameters(cluster_id=CLUSTER_ID)
        group = path_parameters(cluster_id=CLUSTER_ID, consumer_group_id=_NAME)
        consumer = path_parameters(cluster_id=CLUSTER_ID, consumer_group_id=_NAME, consumer_id=_NAME)

        def get(path: str, handler: Any, summary: str, schema: Schema, parameters: Any = group) -> Operation:
            where = f"/v3/clusters/{{cluster_id}}/consumer-groups{path}"
            answers = (Answer(200, "What was asked for.", schema),)
            return Operation("GET", where, handler, summary, TAG, answers, parameters, None, (404,))

        one, member = "/{consumer_group_id}", "/{consumer_group_id}/consumers/{consumer_id}"
        at = "/{topic_name}/partitions/{partition_id}"
        many = collection_schema
        return [
            get("", self.list_groups, "All groups.", many(_GROUP), cluster),
            get(one, self.get_group, "A group.", _GROUP),
            get(f"{one}/consumers", self.list_consumers, "Its members.", many(_CONSUMER)),
            get(member, self.get_consumer, "A member.", _CONSUMER, consumer),
            get(f"{member}/assignments", self.list_assignments, "What it reads.", many(_ASSIGNMENT), consumer),
            get(
                f"{member}/assignments{at}",
                self.get_assignment,
                "A partition it reads.",
                _ASSIGNMENT,
                consumer + path_parameters(**place),
            ),
            get(f"{one}/lag-summary", self.lag_summary, "How far behind it is.", _SUMMARY),
            get(f"{one}/lags", self.list_lags, "How far behind, by partition.", many(_LAG)),
            get(f"{one}/lags{at}", self.get_lag, "How far behind in one.", _LAG, group + path_parameters(**place)),
        ]

    async def list_groups(self, request: Request) -> Response:
        links = await links_for(request, self._services)
        names = (await self._kafka.ask(asking.list_groups))[:GROUPS_TOLD_MAX]
        groups = await self._kafka.ask(lambda cluster: asking.describe_groups(cluster, names))
        told = [_tell_group(links, one) for one in groups]
        return json_response(links.collection("KafkaConsumerGroupList", links.to("consumer-groups"), told))

    async def get_group(self, request: Request) -> Response:
        links, group = await self._group(request)
        return json_response(_tell_group(links, group))

    async def list_consumers(self, request: Request) -> Response:
        links, group = await self._group(request)
        told = [_tell_member(links, group.name, one) for one in group.members]
        url = links.to("consumer-groups", group.name, "consumers")
        return json_response(links.collection("KafkaConsumerList", url, told))

    async def get_consumer(self, request: Request) -> Response:
        links, group, member = await self._member(request)
        return json_response(_tell_member(links, group, member))

    async def list_assignments(self, request: Request) -> Response:
        links, group, member = await self._member(request)
        told = [_tell_assignment(links, group, member, one) for one in member.partitions]
        url = links.to("consumer-groups", group, "consumers", member.id, "assignments")
        return json_response(links.collection("KafkaConsumerAssignmentList", url, told))

    async def get_assignment(self, request: Request) -> Response:
        wanted = _place(request)
        links, group, member = await self._member(request)
        if wanted not in member.partitions:
            raise _lag_not_found()
        return json_response(_tell_assignment(links, group, member, wanted))

    async def list_lags(self, request: Request) -> Response:
        links, view = await self._lags(request)
        told = [_tell_lag(links, view.group, one) for one in view.partitions if one.lag is not None]
        url = links.to("consumer-groups", view.group, "lags")
        return json_response(links.collection("KafkaConsumerLagList", url, told))

    async def get_lag(self, request: Request) -> Response:
        wanted = _place(request)
        links, view = await self._lags(request)
        for one in view.partitions:
            if one.at == wanted and one.lag is not None:
                return json_response(_tell_lag(links, view.group, one))
        raise _lag_not_found()

    async def lag_summary(self, request: Request) -> Response:
        links, view = await self._lags(request)
        known = [one for one in view.partitions if one.lag is not None]
        if not known:
            raise HttpProblem(404, 404, "The group has committed no offsets, so nobody knows how far behind it is.")
        most = max(known, key=lambda one: one.lag or 0)
        owner = most.owner
        at = ("consumer-groups", view.group)
        consumer = {} if owner is None else {"max_lag_consumer": links.related(*at, "consumers", owner.member_id)}
        return json_response(
            links.resource(
                "KafkaConsumerGroupLagSummary",
                links.to(*at, "lag-summary"),
                f"{links.name(('consumer-group', view.group))}/lag-summary",
                consumer_group_id=view.group,
                max_lag_consumer_id=None if owner is None else owner.member_id,
                max_lag_instance_id=None if owner is None else owner.instance_id,
                max_lag_client_id=None if owner is None else owner.client_id,
                max_lag_topic_name=most.at.topic,
                max_lag_partition_id=most.at.partition,
                max_lag=most.lag,
                total_lag=view.total_lag,
                **consumer,
                max_lag_partition=links.related("topics", most.at.topic, "partitions", most.at.partition),
            )
        )

    async def _group(self, request: Request) -> tuple[Links, asking.Group]:
        links = await links_for(request, self._services)
        name = plain_name(request.path_params["consumer_group_id"], _group_not_found())
        group = (await self._kafka.ask(lambda cluster: asking.describe_groups(cluster, [name])))[0]
        if group.state in ("DEAD", "UNKNOWN") and not group.members:
            raise _group_not_found()
        return links, group

    async def _member(self, request: Request) -> tuple[Links, str, asking.GroupMember]:
        links, group = await self._group(request)
        for member in group.members:
            if member.id == request.path_params["consumer_id"]:
                return links, group.name, member
        raise _consumer_not_found()

    async def _lags(self, request: Request) -> tuple[Links, GroupView]:
        links, group = await self._group(request)
        view = (await self._kafka.ask(lambda cluster: view_groups(cluster, [group.name])))[0]
        return links, view


def _place(request: Request) -> TopicPartition:
    topic = topic_name(request.path_params["topic_name"], _lag_not_found())
    return TopicPartition(topic, path_int(request, "partition_id", _lag_not_found()))


def _tell_group(links: Links, group: asking.Group) -> dict[str, Any]:
    at = ("consumer-groups", group.name)
    coordinator = {} if group.coordinator is None else {"coordinator": links.related("brokers", group.coordinator)}
    return links.resource(
        "KafkaConsumerGroup",
        links.to(*at),
        links.name(("consumer-group", group.name)),
        consumer_group_id=group.name,
        is_simple=group.is_simple,
        partition_assignor=group.assignor,
        state=group.state,
        **coordinator,
        consumers=links.related(*at, "consumers"),
        lag_summary=links.related(*at, "lag-summary"),
    )


def _tell_member(links: Links, group: str, member: asking.GroupMember) -> dict[str, Any]:
    at = ("consumer-groups", group, "consumers", member.id)
    return links.resource(
        "KafkaConsumer",
        links.to(*at),
        links.name(("consumer-group", group), ("consumer", member.id)),
        consumer_group_id=group,
        consumer_id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=links.related(*at, "assignments"),
    )


def _tell_assignment(links: Links, group: str, member: asking.GroupMember, at: TopicPartition) -> dict[str, Any]:
    return links.resource(
        "KafkaConsumerAssignment",
        links.to("consumer-groups", group, "consumers", member.id, "assignments", at.topic, "partitions", at.partition),
        links.name(
            ("consumer-group", group), ("consumer", member.id), ("assignment", at.topic), ("partition", at.partition)
        ),
        consumer_group_id=group,
        consumer_id=member.id,
        topic_name=at.topic,
        partition_id=at.partition,
        partition=links.related("topics", at.topic, "partitions", at.partition),
        lag=links.related("consumer-groups", group, "lags", at.topic, "partitions", at.partition),
    )


def _tell_lag(links: Links, group: str, lag: PartitionLag) -> dict[str, Any]:
    at, owner = lag.at, lag.owner
    return links.resource(
        "KafkaConsumerLag",
        links.to("consumer-groups", group, "lags", at.topic, "partitions", at.partition),
        links.name(("consumer-group", group), ("lag", at.topic), ("partition", at.partition)),
        consumer_group_id=group,
        topic_name=at.topic,
        partition_id=at.partition,
        consumer_id=None if owner is None else owner.member_id,
        instance_id=None if owner is None else owner.instance_id,
        client_id=None if owner is None else owner.client_id,
        current_offset=lag.committed,
        log_end_offset=lag.end,
        lag=lag.lag,
    )
