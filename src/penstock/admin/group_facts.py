"""What brokers say of a group and librdkafka does not pass on: epochs, and when and why it last rebalanced.

Called by cli.group_lag. Asked over a connection of our own, so a cluster with TLS or SASL gives nothing here, and a
broker other than penstock gives no cause; either is left out, and what was asked for does not fail for want of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.admin.cluster import Cluster
from penstock.admin.failures import CommandFailed
from penstock.errors import ErrorCode
from penstock.model import Endpoint
from penstock.wire.apis import ApiKey

# Penstock puts this where an error would be explained, of a group that has none.
_NOTE = re.compile(r"rebalanced at (\S+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rebalance:
    at: str
    cause: str


@dataclass(frozen=True, slots=True)
class GroupFacts:
    epoch: int | None = None
    target_epoch: int | None = None
    rebalance: Rebalance | None = None
    member_epochs: Mapping[str, int] = field(default_factory=dict[str, int])


NOTHING_KNOWN = GroupFacts()


def ask_facts(cluster: Cluster, group: str, is_consumer_group: bool, coordinator: Endpoint | None) -> GroupFacts:
    """`coordinator`: the broker that keeps the group; None if nobody does."""
    if coordinator is None or not cluster.is_plaintext:
        return NOTHING_KNOWN
    try:
        if is_consumer_group:
            body = {"group_ids": [group], "include_authorized_operations": False}
            reply = cluster.request(ApiKey.CONSUMER_GROUP_DESCRIBE, body, coordinator)
        else:
            reply = cluster.request(ApiKey.DESCRIBE_GROUPS, {"groups": [group]}, coordinator)
    except CommandFailed:
        return NOTHING_KNOWN
    (described,) = reply.groups
    return read_facts(described, is_consumer_group)


def read_facts(described: Any, is_consumer_group: bool) -> GroupFacts:
    if described.error_code != ErrorCode.NONE:
        return NOTHING_KNOWN
    note = _NOTE.fullmatch(getattr(described, "error_message", None) or "")
    rebalance = Rebalance(*note.groups()) if note else None
    if not is_consumer_group:
        return GroupFacts(rebalance=rebalance)
    return GroupFacts(
        described.group_epoch,
        described.assignment_epoch,
        rebalance,
        {member.member_id: member.member_epoch for member in described.members},
    )
