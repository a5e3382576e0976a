"""Who decides in the cluster, in the shape Kafka has for it: DescribeQuorum.

Called by server.dispatch. Kafka's controllers are a quorum that keeps the metadata in the log `__cluster_metadata`;
ours is in a store, and any broker may hold the controller's lease. So the voters are the brokers that are registered,
the leader is the holder of the lease, and offsets are revisions of the store. Of other brokers' progress nothing is
known here, and nothing is said.
"""

from collections.abc import Mapping
from typing import Any

from penstock.errors import ErrorCode
from penstock.handlers.context import HandlerContext, Request

Body = Mapping[str, Any]

METADATA_TOPIC = "__cluster_metadata"
LISTENER_NAME = "PLAINTEXT"
UNKNOWN = -1


def handle_describe_quorum(context: HandlerContext, request: Request) -> Body:
    asked = request.body.topics
    if [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in asked] != [
        (METADATA_TOPIC, [0])
    ]:
        # As Kafka: one partition exists that can be described, and it is described alone.
        return {"topics": [_refusal(topic) for topic in asked], "nodes": []}
    image = context.image
    partition = {
        "partition_index": 0,
        "error_code": ErrorCode.NONE,
        "leader_id": image.controller_id,
        "leader_epoch": image.controller_epoch,
        "high_watermark": image.revision,
        "current_voters": [_voter(context, node_id) for node_id in sorted(image.brokers)],
        "observers": [],
    }
    nodes = [
        {
            "node_id": broker.id,
            "listeners": [{"name": LISTENER_NAME, "host": broker.endpoint.host, "port": broker.endpoint.port}],
        }
        for _, broker in sorted(image.brokers.items())
    ]
    return {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [partition]}], "nodes": nodes}


def _refusal(topic: Any) -> Body:
    refused = [
        {
            "partition_index": one.partition_index,
            "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "error_message": f"only {METADATA_TOPIC}-0 can be described, and only alone",
            "leader_id": UNKNOWN,
            "leader_epoch": UNKNOWN,
            "high_watermark": UNKNOWN,
        }
        for one in topic.partitions
    ]
    return {"topic_name": topic.topic_name, "partitions": refused}


def _voter(context: HandlerContext, node_id: int) -> Body:
    is_this_one = node_id == context.node.node_id
    return {
        "replica_id": node_id,
        "log_end_offset": context.image.revision if is_this_one else UNKNOWN,
        "last_caught_up_timestamp": context.clock.now_ms() if is_this_one else UNKNOWN,
    }
