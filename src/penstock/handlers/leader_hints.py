"""Who leads instead of us, told with the refusal (KIP-951): a client that knows need not ask for metadata first.

Called by handlers.produce and handlers.fetch.
"""

from collections.abc import Iterable
from uuid import UUID

from penstock.errors import ErrorCode, PenstockError
from penstock.handlers.context import HandlerContext
from penstock.wire.produce import NodeEndpoint

_LED_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def leader_hint(context: HandlerContext, topic: str | UUID, index: int, error: PenstockError) -> tuple[int, int] | None:
    """The leader and its epoch, if that is what the client lacks and somebody leads."""
    if error.code not in _LED_ELSEWHERE:
        return None
    image = context.image
    known = image.topics.get(topic) if isinstance(topic, str) else image.topics_by_id.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return None
    state = known.partitions[index]
    return (state.leader, state.leader_epoch) if state.leader in image.brokers else None


def endpoints_of(context: HandlerContext, leaders: Iterable[tuple[int, int] | None]) -> list[NodeEndpoint]:
    nodes = {leader[0] for leader in leaders if leader is not None}
    brokers = context.image.brokers
    return [
        NodeEndpoint(node, broker.endpoint.host, broker.endpoint.port, broker.rack)
        for node in sorted(nodes)
        if (broker := brokers.get(node)) is not None
    ]
