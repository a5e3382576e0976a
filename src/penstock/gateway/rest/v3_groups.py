"""REST v3: consumer groups, their members, and what each reads.

Called by gateway.rest; how far behind a group is, v3_lags tells.
"""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, json_response
from penstock.gateway.rest import asking
from penstock.gateway.rest.envelope import RELATED, Links, collection_schema, links_for, resource_schema
from penstock.gateway.rest.names import plain_name, topic_name
from penstock.gateway.rest.reading import path_int
from penstock.gateway.rest.shapes import BOOLEAN, INTEGER, NAME, PARTITION, STRING, TOPIC_NAME, nullable
from penstock.gateway.rest.table import Row, path_parameters
from penstock.gateway.rest.v3_paths import GROUPS, IN_CLUSTER, get_row
from penstock.model import TopicPartition

TAG = "Consumer groups (v3)"
GROUPS_TOLD_MAX = 10_000
GROUP = f"{GROUPS}/{{consumer_group_id}}"
IN_GROUP = (*IN_CLUSTER, *path_parameters(consumer_group_id=NAME))
# A partition that a group reads, below whatever speaks of it.
PLACE = "/{topic_name}/partitions/{partition_id}"
PLACE_PARAMETERS = path_parameters(topic_name=TOPIC_NAME, partition_id=PARTITION)

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


class V3Groups:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._kafka = services.kafka

    def rows(self) -> list[Row]:
        get, many = partial(get_row, TAG), collection_schema
        consumers, one = f"{GROUP}/consumers", f"{GROUP}/consumers/{{consumer_id}}"
        held, held_one = f"{one}/assignments", f"{one}/assignments{PLACE}"
        in_consumer = (*IN_GROUP, *path_parameters(consumer_id=NAME))
        in_place = (*in_consumer, *PLACE_PARAMETERS)
        return [
            get(GROUPS, self.list_groups, "All groups.", many(_GROUP), IN_CLUSTER),
            get(GROUP, self.get_group, "A group.", _GROUP, IN_GROUP),
            get(consumers, self.list_consumers, "Its members.", many(_CONSUMER), IN_GROUP),
            get(one, self.get_consumer, "A member.", _CONSUMER, in_consumer),
            get(held, self.list_assignments, "What it reads.", many(_ASSIGNMENT), in_consumer),
            get(held_one, self.get_assignment, "A partition it reads.", _ASSIGNMENT, in_place),
        ]

    async def list_groups(self, request: Request) -> Response:
        links = links_for(request, self._services)
        names = (await self._kafka.ask(asking.list_groups))[:GROUPS_TOLD_MAX]
        groups = await self._kafka.ask(lambda cluster: asking.describe_groups(cluster, names))
        return links.answer_list("KafkaConsumerGroup", [_tell_group(links, one) for one in groups], "consumer-groups")

    async def get_group(self, request: Request) -> Response:
        return json_response(_tell_group(*await describe_group(request, self._services)))

    async def list_consumers(self, request: Request) -> Response:
        links, group = await describe_group(request, self._services)
        told = [_tell_member(links, group.name, one) for one in group.members]
        return links.answer_list("KafkaConsumer", told, "consumer-groups", group.name, "consumers")

    async def get_consumer(self, request: Request) -> Response:
        return json_response(_tell_member(*await self._member(request)))

    async def list_assignments(self, request: Request) -> Response:
        links, group, member = await self._member(request)
        told = [_tell_assignment(links, group, member, one) for one in member.partitions]
        at = ("consumer-groups", group, "consumers", member.id, "assignments")
        return links.answer_list("KafkaConsumerAssignment", told, *at)

    async def get_assignment(self, request: Request) -> Response:
        wanted = place_in(request)
        links, group, member = await self._member(request)
        if wanted not in member.partitions:
            raise place_not_found()
        return json_response(_tell_assignment(links, group, member, wanted))

    async def _member(self, request: Request) -> tuple[Links, str, asking.GroupMember]:
        links, group = await describe_group(request, self._services)
        for member in group.members:
            if member.id == request.path_params["consumer_id"]:
                return links, group.name, member
        raise HttpProblem(404, 404, "The consumer group has no such member.")


async def describe_group(request: Request, services: Services) -> tuple[Links, asking.Group]:
    links = links_for(request, services)
    missing = HttpProblem(404, 404, "There is no such consumer group.")
    name = plain_name(request.path_params["consumer_group_id"], missing)
    group = (await services.kafka.ask(lambda cluster: asking.describe_groups(cluster, [name])))[0]
    if group.state in ("DEAD", "UNKNOWN") and not group.members:
        raise missing
    return links, group


def place_in(request: Request) -> TopicPartition:
    topic = topic_name(request.path_params["topic_name"], place_not_found())
    return TopicPartition(topic, path_int(request, "partition_id", place_not_found()))


def place_not_found() -> HttpProblem:
    return HttpProblem(404, 404, "The group reads no such partition.")


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
