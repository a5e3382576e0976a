"""REST v3: how far behind a consumer group is, by partition and in sum.

Called by gateway.rest. Lag is what penstock.admin.group_lag finds; here it gets Confluent's names.
"""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from penstock.admin.group_lag import GroupView, PartitionLag, view_groups
from penstock.gateway.app import Services
from penstock.gateway.errors import HttpProblem, json_response
from penstock.gateway.rest.envelope import Links, collection_schema, resource_schema
from penstock.gateway.rest.shapes import INTEGER, STRING, nullable
from penstock.gateway.rest.table import Row
from penstock.gateway.rest.v3_groups import (
    GROUP,
    IN_GROUP,
    PLACE,
    PLACE_PARAMETERS,
    TAG,
    describe_group,
    place_in,
    place_not_found,
)
from penstock.gateway.rest.v3_paths import get_row

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


class V3Lags:
    def __init__(self, services: Services) -> None:
        self._services = services

    def rows(self) -> list[Row]:
        get = partial(get_row, TAG)
        lags, in_place = f"{GROUP}/lags", (*IN_GROUP, *PLACE_PARAMETERS)
        return [
            get(f"{GROUP}/lag-summary", self.summary, "How far behind it is.", _SUMMARY, IN_GROUP),
            get(lags, self.list_lags, "How far behind, by partition.", collection_schema(_LAG), IN_GROUP),
            get(f"{lags}{PLACE}", self.get_lag, "How far behind in one.", _LAG, in_place),
        ]

    async def list_lags(self, request: Request) -> Response:
        links, view = await self._view(request)
        told = [_tell_lag(links, view.group, one) for one in view.partitions if one.lag is not None]
        return links.answer_list("KafkaConsumerLag", told, "consumer-groups", view.group, "lags")

    async def get_lag(self, request: Request) -> Response:
        wanted = place_in(request)
        links, view = await self._view(request)
        for one in view.partitions:
            if one.at == wanted and one.lag is not None:
                return json_response(_tell_lag(links, view.group, one))
        raise place_not_found()

    async def summary(self, request: Request) -> Response:
        links, view = await self._view(request)
        known = [one for one in view.partitions if one.lag is not None]
        if not known:
            raise HttpProblem(404, 404, "The group has committed no offsets, so nobody knows how far behind it is.")
        return json_response(_tell_summary(links, view, max(known, key=lambda one: one.lag or 0)))

    async def _view(self, request: Request) -> tuple[Links, GroupView]:
        links, group = await describe_group(request, self._services)
        view = (await self._services.kafka.ask(lambda cluster: view_groups(cluster, [group.name])))[0]
        return links, view


def _tell_summary(links: Links, view: GroupView, most: PartitionLag) -> dict[str, Any]:
    owner, at = most.owner, ("consumer-groups", view.group)
    consumer = {} if owner is None else {"max_lag_consumer": links.related(*at, "consumers", owner.member_id)}
    return links.resource(
        "KafkaConsumerGroupLagSummary",
        links.to(*at, "lag-summary"),
        f"{links.name(('consumer-group', view.group))}/lag-summary",
        consumer_group_id=view.group,
        **_tell_owner(most, "max_lag_"),
        max_lag_topic_name=most.at.topic,
        max_lag_partition_id=most.at.partition,
        max_lag=most.lag,
        total_lag=view.total_lag,
        **consumer,
        max_lag_partition=links.related("topics", most.at.topic, "partitions", most.at.partition),
    )


def _tell_lag(links: Links, group: str, lag: PartitionLag) -> dict[str, Any]:
    at = lag.at
    return links.resource(
        "KafkaConsumerLag",
        links.to("consumer-groups", group, "lags", at.topic, "partitions", at.partition),
        links.name(("consumer-group", group), ("lag", at.topic), ("partition", at.partition)),
        consumer_group_id=group,
        topic_name=at.topic,
        partition_id=at.partition,
        **_tell_owner(lag),
        current_offset=lag.committed,
        log_end_offset=lag.end,
        lag=lag.lag,
    )


def _tell_owner(lag: PartitionLag, prefix: str = "") -> dict[str, str | None]:
    """Who reads the partition now, if anybody does."""
    owner = lag.owner
    return {
        f"{prefix}consumer_id": None if owner is None else owner.member_id,
        f"{prefix}instance_id": None if owner is None else owner.instance_id,
        f"{prefix}client_id": None if owner is None else owner.client_id,
    }
