"""The topic of the markers: made by whoever needs it first, and checked to be one that keeps what it is given.

Called by marker_reading.py. Several drivers and workers may make it at once: all but one are told that it exists.
"""

import os
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka.admin
from confluent_kafka import KafkaException

from penstock.spark.errors import Unreachable
from penstock.spark.sink.failures import MarkersUnusable
from penstock.spark.sink.marker import PARTITIONS, MarkerTopic

if TYPE_CHECKING:
    from penstock.spark.fetching import Cluster, TopicFacts
    from penstock.spark.options import WriteOptions

# It exports its classes to people but not to type checkers.
_kafka: Any = confluent_kafka.admin

DEADLINE_S = 60.0
# A look at the settings is a courtesy: no task should wait long for it.
CHECK_S = 10.0
# The client ends each request at its own deadline and says why; whoever waits for that waits a little longer.
_GRACE_S = 10.0
_PAUSE_S = 0.05
_NOT_ALLOWED = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")

# Clusters where this process has seen the topic's settings to be right.
_checked: set[tuple[int, str, str]] = set()


def ready_topic(options: "WriteOptions", cluster: "Cluster", topic: MarkerTopic) -> "TopicFacts":
    """The topic, there with all of its partitions led; made if nobody has."""
    from penstock.spark.fetching import NotAdmitted

    deadline = time.monotonic() + DEADLINE_S
    is_made = False
    while True:
        try:
            facts = cluster.topics([topic.name])[topic.name]
        except NotAdmitted as denied:
            raise MarkersUnusable(f"{denied}; {_remedy(topic, is_permission=True)}") from None
        if facts is None and not is_made:
            _make(options, topic)
            is_made = True
        elif facts is not None:
            if len(facts.leaders) < PARTITIONS:
                raise MarkersUnusable(
                    f"topic {topic.name} has {len(facts.leaders)} partitions instead of {PARTITIONS}: it was not made "
                    "by penstock; delete it, or add partitions before the first query writes"
                )
            if all(leader >= 0 for number, leader in facts.leaders.items() if number < PARTITIONS):
                _check_once(options, topic)
                return facts
        if time.monotonic() > deadline:
            raise Unreachable(f"topic {topic.name} has partitions without a leader since {DEADLINE_S:g} s")
        # A topic just made takes a moment to have leaders; there is nothing to be woken by.
        time.sleep(_PAUSE_S)


def _make(options: "WriteOptions", topic: MarkerTopic) -> None:
    # -1: as many replicas as the cluster gives by default, and its min.insync.replicas.
    wanted = _kafka.NewTopic(topic.name, num_partitions=PARTITIONS, replication_factor=-1, config=topic.config)
    # Named, so that it outlives the request: what it was asked ends with it.
    admin = _admin(options)
    made = admin.create_topics([wanted], operation_timeout=DEADLINE_S, request_timeout=DEADLINE_S)
    try:
        made[topic.name].result(DEADLINE_S + _GRACE_S)
    except KafkaException as refused:
        name = refused.args[0].name()
        if name == "TOPIC_ALREADY_EXISTS":
            return
        raise MarkersUnusable(
            f"topic {topic.name}, which remembers what was written, cannot be made ({refused.args[0].str()}): "
            + _remedy(topic, is_permission=name in _NOT_ALLOWED)
        ) from None


def _remedy(topic: MarkerTopic, *, is_permission: bool) -> str:
    by_hand = f"make it by hand with {PARTITIONS} partitions and cleanup.policy={topic.cleanup_policy}"
    if is_permission:
        by_hand = f"allow Create, Read and Write on topics that begin with penstock-spark-, {by_hand}"
    return f"{by_hand}, or use delivery=at-least-once"


def _check_once(options: "WriteOptions", topic: MarkerTopic) -> None:
    """A topic that somebody made with the wrong policy would forget markers after some days, and rows would double."""
    key = (os.getpid(), options.librdkafka["bootstrap.servers"], topic.name)
    if key in _checked:
        return
    resource = _kafka.ConfigResource(_kafka.ResourceType.TOPIC, topic.name)
    admin = _admin(options)
    asked = admin.describe_configs([resource], request_timeout=CHECK_S)
    try:
        policy = str(asked[resource].result(CHECK_S + _GRACE_S)["cleanup.policy"].value)
    except (KafkaException, KeyError):
        # Whoever may not ask may still write: the operator who gave the rights has made the topic.
        policy = topic.cleanup_policy
    if topic.cleanup_policy == "compact" and policy != "compact":
        raise MarkersUnusable(
            f"topic {topic.name} has cleanup.policy={policy}: markers would be lost and rows doubled; set it to compact"
        )
    _checked.add(key)


def _admin(options: "WriteOptions") -> Any:
    return _kafka.AdminClient(dict(options.librdkafka))
