"""One row per API served: its handler, and the resource and operation its requests are to be authorised for.

Called by server.dispatch. A row cannot be made without resource and operation, and an API of wire.apis without a row
stops the broker from being imported (TRAPS S8).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from penstock.handlers import (
    configs,
    consumer_groups,
    elections,
    group_offsets,
    groups,
    log_dirs,
    metadata,
    offsets,
    producer_ids,
    quorum,
    quotas,
    reassignments,
    telemetry,
    topics,
    transaction_listing,
    transactions,
)
from penstock.handlers.answers import Answer
from penstock.handlers.context import HandlerContext, RawRequest, Request
from penstock.handlers.fetch import handle_fetch
from penstock.handlers.produce import handle_produce
from penstock.wire.apis import APIS, ApiKey

Body = Mapping[str, Any]
RawHandler = Callable[[HandlerContext, RawRequest], Answer]
Handler = Callable[[HandlerContext, Request], Body | Awaitable[Body]]


class Resource(Enum):
    NONE = auto()  # the bare protocol: what a client may ask before it says who it is
    TOPIC = auto()
    GROUP = auto()
    CLUSTER = auto()
    TRANSACTIONAL_ID = auto()


class Operation(Enum):
    NONE = auto()
    READ = auto()
    WRITE = auto()
    CREATE = auto()
    DELETE = auto()
    ALTER = auto()
    DESCRIBE = auto()
    DESCRIBE_CONFIGS = auto()
    ALTER_CONFIGS = auto()
    IDEMPOTENT_WRITE = auto()
    CLUSTER_ACTION = auto()  # what only brokers ask of each other
    REPORT = auto()  # what a client tells of itself: needs no right, but to have said who it is


@dataclass(frozen=True, slots=True)
class Route:
    resource: Resource
    operation: Operation
    handler: Handler | None = None
    raw: RawHandler | None = None


ROUTES: dict[ApiKey, Route] = {
    ApiKey.PRODUCE: Route(Resource.TOPIC, Operation.WRITE, raw=handle_produce),
    ApiKey.FETCH: Route(Resource.TOPIC, Operation.READ, raw=handle_fetch),
    ApiKey.API_VERSIONS: Route(Resource.NONE, Operation.NONE, metadata.handle_api_versions),
    ApiKey.METADATA: Route(Resource.TOPIC, Operation.DESCRIBE, metadata.handle_metadata),
    ApiKey.DESCRIBE_CLUSTER: Route(Resource.CLUSTER, Operation.DESCRIBE, metadata.handle_describe_cluster),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Route(
        Resource.TOPIC, Operation.DESCRIBE, metadata.handle_describe_topic_partitions
    ),
    ApiKey.LIST_OFFSETS: Route(Resource.TOPIC, Operation.DESCRIBE, offsets.handle_list_offsets),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(Resource.TOPIC, Operation.DESCRIBE, offsets.handle_offset_for_leader_epoch),
    ApiKey.DELETE_RECORDS: Route(Resource.TOPIC, Operation.DELETE, offsets.handle_delete_records),
    ApiKey.INIT_PRODUCER_ID: Route(Resource.CLUSTER, Operation.IDEMPOTENT_WRITE, producer_ids.handle_init_producer_id),
    # Besides: writing to each topic it names; from version 4 the cluster action, since only brokers send those.
    ApiKey.ADD_PARTITIONS_TO_TXN: Route(
        Resource.TRANSACTIONAL_ID, Operation.WRITE, transactions.handle_add_partitions_to_txn
    ),
    # Besides, both: reading of the group; the second also of each topic.
    ApiKey.ADD_OFFSETS_TO_TXN: Route(
        Resource.TRANSACTIONAL_ID, Operation.WRITE, transactions.handle_add_offsets_to_txn
    ),
    ApiKey.TXN_OFFSET_COMMIT: Route(Resource.TRANSACTIONAL_ID, Operation.WRITE, transactions.handle_txn_offset_commit),
    ApiKey.END_TXN: Route(Resource.TRANSACTIONAL_ID, Operation.WRITE, transactions.handle_end_txn),
    ApiKey.WRITE_TXN_MARKERS: Route(Resource.CLUSTER, Operation.CLUSTER_ACTION, transactions.handle_write_txn_markers),
    ApiKey.DESCRIBE_PRODUCERS: Route(Resource.TOPIC, Operation.READ, transaction_listing.handle_describe_producers),
    ApiKey.DESCRIBE_TRANSACTIONS: Route(
        Resource.TRANSACTIONAL_ID, Operation.DESCRIBE, transaction_listing.handle_describe_transactions
    ),
    ApiKey.LIST_TRANSACTIONS: Route(
        Resource.TRANSACTIONAL_ID, Operation.DESCRIBE, transaction_listing.handle_list_transactions
    ),
    ApiKey.CREATE_TOPICS: Route(Resource.TOPIC, Operation.CREATE, topics.handle_create_topics),
    ApiKey.DELETE_TOPICS: Route(Resource.TOPIC, Operation.DELETE, topics.handle_delete_topics),
    ApiKey.CREATE_PARTITIONS: Route(Resource.TOPIC, Operation.ALTER, topics.handle_create_partitions),
    ApiKey.ELECT_LEADERS: Route(Resource.CLUSTER, Operation.ALTER, elections.handle_elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(
        Resource.CLUSTER, Operation.ALTER, reassignments.handle_alter_partition_reassignments
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(
        Resource.CLUSTER, Operation.DESCRIBE, reassignments.handle_list_partition_reassignments
    ),
    ApiKey.DESCRIBE_QUORUM: Route(Resource.CLUSTER, Operation.DESCRIBE, quorum.handle_describe_quorum),
    ApiKey.DESCRIBE_CONFIGS: Route(Resource.TOPIC, Operation.DESCRIBE_CONFIGS, configs.handle_describe_configs),
    ApiKey.ALTER_CONFIGS: Route(Resource.TOPIC, Operation.ALTER_CONFIGS, configs.handle_alter_configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(
        Resource.TOPIC, Operation.ALTER_CONFIGS, configs.handle_incremental_alter_configs
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Route(
        Resource.CLUSTER, Operation.DESCRIBE_CONFIGS, configs.handle_list_config_resources
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(
        Resource.CLUSTER, Operation.DESCRIBE_CONFIGS, quotas.handle_describe_client_quotas
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: Route(Resource.CLUSTER, Operation.ALTER_CONFIGS, quotas.handle_alter_client_quotas),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Route(
        Resource.CLUSTER, Operation.REPORT, telemetry.handle_get_telemetry_subscriptions
    ),
    ApiKey.PUSH_TELEMETRY: Route(Resource.CLUSTER, Operation.REPORT, telemetry.handle_push_telemetry),
    ApiKey.DESCRIBE_LOG_DIRS: Route(Resource.CLUSTER, Operation.DESCRIBE, log_dirs.handle_describe_log_dirs),
    ApiKey.FIND_COORDINATOR: Route(Resource.GROUP, Operation.DESCRIBE, groups.handle_find_coordinator),
    ApiKey.JOIN_GROUP: Route(Resource.GROUP, Operation.READ, groups.handle_join_group),
    ApiKey.SYNC_GROUP: Route(Resource.GROUP, Operation.READ, groups.handle_sync_group),
    ApiKey.HEARTBEAT: Route(Resource.GROUP, Operation.READ, groups.handle_heartbeat),
    ApiKey.LEAVE_GROUP: Route(Resource.GROUP, Operation.READ, groups.handle_leave_group),
    ApiKey.DESCRIBE_GROUPS: Route(Resource.GROUP, Operation.DESCRIBE, groups.handle_describe_groups),
    ApiKey.LIST_GROUPS: Route(Resource.CLUSTER, Operation.DESCRIBE, groups.handle_list_groups),
    ApiKey.DELETE_GROUPS: Route(Resource.GROUP, Operation.DELETE, groups.handle_delete_groups),
    # Besides, the first: describing each topic it names.
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Route(
        Resource.GROUP, Operation.READ, consumer_groups.handle_consumer_group_heartbeat
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Route(
        Resource.GROUP, Operation.DESCRIBE, consumer_groups.handle_consumer_group_describe
    ),
    ApiKey.OFFSET_COMMIT: Route(Resource.GROUP, Operation.READ, group_offsets.handle_offset_commit),
    ApiKey.OFFSET_FETCH: Route(Resource.GROUP, Operation.DESCRIBE, group_offsets.handle_offset_fetch),
    ApiKey.OFFSET_DELETE: Route(Resource.GROUP, Operation.DELETE, group_offsets.handle_offset_delete),
}

assert ROUTES.keys() == {api.key for api in APIS}, "every API that is advertised has a handler"
